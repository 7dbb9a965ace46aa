"""Tests of candidates: what their data must have."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from fusionlab import FusionModule
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.fusion import TestSet
from fusionlab.fusion.results import Candidate
from fusionlab.fusion.testing import CandidateTest
from tests.commands.small import vit
from tests.fusion.test_module import trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_a_trainer_divides_data_after_a_test_as_before() -> None:
    """A fit of something else by it is not to go through all data in every process."""
    module, run = CandidateTest([Candidate(("a",), "end model", "-", vit(0))], [TestSet("digits")]), trainer()
    before = run._accelerator_connector.use_distributed_sampler
    run.test(module, datamodule=Digits(), verbose=False)
    assert module.rows
    assert run._accelerator_connector.use_distributed_sampler is before is True


def test_data_without_a_known_label_are_told_as_that() -> None:
    """No model diverges there."""
    module = FusionModule([vit(0), vit(1)], "none", test_sets=[TestSet("blank")])
    run = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    run.fit(module)
    batch = {"pixel_values": torch.zeros(2, 1, 8, 8), "labels": torch.full((2,), -100)}
    with pytest.raises(InputError, match="the data 'blank' has no known label to measure by"):
        run.test(module, DataLoader([batch], batch_size=None), verbose=False)  # type: ignore[arg-type]
