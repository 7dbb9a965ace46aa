"""A run that is cut in the middle."""

from typing import Any

from lightning.pytorch import Callback, Trainer


class Cut(Callback):
    """Ends the run as an error would, after some batches of all stages together."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.batches -= 1
        if self.batches == 0:
            raise RuntimeError("cut")
