"""Tests of candidates: what their data must have."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from fusionlab import FusionModule
from fusionlab.errors import InputError
from fusionlab.fusion import TestSet
from tests.commands.small import vit

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_data_without_a_known_label_are_told_as_that() -> None:
    """No model diverges there."""
    module = FusionModule([vit(0), vit(1)], "none", test_sets=[TestSet("blank")])
    run = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    run.fit(module)
    batch = {"pixel_values": torch.zeros(2, 1, 8, 8), "labels": torch.full((2,), -100)}
    with pytest.raises(InputError, match="the data 'blank' has no known label to measure by"):
        run.test(module, DataLoader([batch], batch_size=None), verbose=False)  # type: ignore[arg-type]
