"""Trainers of the project's own passes: what their progress bars say."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from fusionlab.trainers import NamedProgressBar, make_trainer


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.ones(1)


class Slope(LightningModule):
    """One number to be learned."""

    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.ones(1))
        self.totals: set[float] = set()

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        bar = self.trainer.progress_bar_callback
        assert isinstance(bar, NamedProgressBar)
        self.totals.add(bar.total_train_batches)
        return (self.number * batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.125)


def test_a_counted_number_of_steps_is_known_to_the_progress_bar(capsys):
    """Inputs without a length stop after `max_steps`, and the bar counts towards that."""
    module = Slope()
    trainer = make_trainer({"accelerator": "cpu", "devices": 1}, "going down", max_steps=3)
    trainer.fit(module, DataLoader(Endless(), batch_size=None))
    assert module.number.item() == 1 - 3 * 0.125
    # Lightning says how many steps are left.
    assert module.totals == {3, 2, 1}
    assert "going down" in capsys.readouterr().out
