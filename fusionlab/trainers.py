"""Trainers that leave nothing behind but what their module keeps."""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import RichProgressBar

from fusionlab.errors import InputError, first_line

# Makes a Trainer with a label for its progress bar; further keywords are the Trainer's.
TrainerFactory = Callable[..., Trainer]


class NamedProgressBar(RichProgressBar):
    """Lightning's progress bar, saying what is being done."""

    def __init__(self, label: str, leave: bool = True) -> None:
        super().__init__(leave=leave)
        self._label = label

    def _get_train_description(self, current_epoch: int) -> str:
        # Lightning has no public name for this one; its own words would be "Epoch 0/0".
        return self._label

    @property
    def predict_description(self) -> str:
        return self._label

    @property
    def test_description(self) -> str:
        return self._label


def quiet_trainer(**options: Any) -> Trainer:
    """A Trainer that logs, saves and shows nothing.

    Args:
        options: arguments of the Trainer.
    """
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "max_epochs": 1,
    }
    return Trainer(**{**quiet, **options})


def make_trainer(settings: Mapping[str, Any], label: str, leave: bool = True, **options: Any) -> Trainer:
    """The same with a progress bar.

    Args:
        settings: accelerator, devices, precision, strategy.
        label: of the progress bar.
        leave: whether the finished bar stays on the screen.
        options: further arguments of the Trainer, such as ``max_steps``.

    Raises:
        InputError: settings that the Trainer refuses.
    """
    callbacks = [NamedProgressBar(label, leave), *options.pop("callbacks", [])]
    try:
        return quiet_trainer(**{"enable_progress_bar": True, **settings, **options}, callbacks=callbacks)
    except (ValueError, MisconfigurationException) as error:
        raise InputError(first_line(error)) from error
