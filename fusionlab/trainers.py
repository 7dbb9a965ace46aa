"""Trainers that leave nothing behind but what their module keeps."""

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import RichProgressBar

from fusionlab.errors import InputError, first_line
from fusionlab.printing import progress_options
from fusionlab.sharding_strategy import refuse_sharding, strategy_of

# Precisions in which Lightning converts the module's parameters in place: end models and merges would be rounded.
ROUNDING = ("16-true", "bf16-true", "transformer-engine", "transformer-engine-float16")
# Of one machine; Lightning makes a list of as many as it is told, whatever there is.
MOST_DEVICES = 1024


@dataclass(frozen=True)
class Devices:
    """The devices that everything that passes over data runs on, in the words of Lightning's Trainer.

    Attributes:
        accelerator: ``auto``, ``cpu``, ``gpu`` or another one that Lightning knows.
        devices: how many of them, or which.
        precision: of the passes, such as ``32-true``, ``bf16-mixed`` or ``64-true``; those that round the models
            themselves are refused.
    """

    accelerator: str = "auto"
    devices: int | str = 1
    precision: str = "32-true"


class NamedProgressBar(RichProgressBar):
    """Lightning's progress bar, saying what is being done.

    Args:
        label: what it says, where the module runs no stages (see `fusionlab.stages`), which have labels of their own.
        leave: whether a finished bar stays on the screen.
        console_kwargs: of rich's one console, on which Lightning shows its bars and prints results of tests.
    """

    def __init__(self, label: str = "", leave: bool = True, console_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(leave=leave, console_kwargs=console_kwargs)
        self._label = label

    def _get_train_description(self, current_epoch: int) -> str:
        # Lightning has no public name for this one; its own words would be "Epoch 0/0".
        stage = self._stage
        return self._label if stage is None else str(stage.label)

    @property
    def _stage(self) -> Any:
        return getattr(self.trainer.lightning_module, "stage", None)

    @property
    def total_train_batches(self) -> int | float:
        """The number of batches of the present stage, where that is known."""
        stage, most = self._stage, super().total_train_batches
        return most if stage is None or stage.steps is None else min(stage.steps, most)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """The metrics shown beside the bar: not the logs' version, and no loss where the stage is no descent."""
        shown = super().get_metrics(trainer, pl_module)
        stage = self._stage
        left_out = {"v_num"} if stage is None or stage.optimizer is not None else {"v_num", "loss"}
        return {name: value for name, value in shown.items() if name not in left_out}

    @property
    def test_description(self) -> str:
        return self._label


@contextmanager
def without_chatter() -> Iterator[None]:
    """Silence what Lightning says of devices, of products and of loops that train no parameters, inside the block."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch.utilities.rank_zero", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def quiet_trainer(**options: Any) -> Trainer:
    """A Trainer that logs, saves and shows nothing.

    Args:
        options: arguments of the Trainer.

    Raises:
        InputError: more processes than there are processors, or than any machine has devices.
    """
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "max_epochs": 1,
    }
    refuse_many_devices(options.get("devices"))
    if "strategy" in options:
        options["strategy"] = strategy_of(options["strategy"])
    trainer = Trainer(**{**quiet, **options})
    # Lightning starts as many processes as it is told to, on a processor of any size. Two are for trying things out.
    most = max(2, os.cpu_count() or 1)
    if isinstance(trainer.accelerator, CPUAccelerator) and trainer.num_devices > most:
        raise InputError(f"devices is {trainer.num_devices}; expected at most {most} on the processors of this machine")
    return trainer


def quiet_factory(settings: Mapping[str, Any]) -> Callable[[], Trainer]:
    """A function that makes quiet Trainers.

    Args:
        settings: arguments of every Trainer, such as accelerator, devices, precision.

    Raises:
        InputError: a precision that rounds the models; from the factory, settings that the Trainer refuses.
    """
    refuse_rounding(settings.get("precision"))

    def make() -> Trainer:
        refuse_sharding(settings.get("strategy"))
        with _refusals():
            return quiet_trainer(**settings)

    return make


def make_trainer(settings: Mapping[str, Any], label: str, leave: bool = True, **options: Any) -> Trainer:
    """The same with a progress bar.

    Args:
        settings: accelerator, devices, precision, strategy.
        label: of the progress bar.
        leave: whether the finished bar stays on the screen.
        options: further arguments of the Trainer, such as ``max_steps``.

    Raises:
        InputError: settings that the Trainer refuses, or a precision that rounds the models.
    """
    refuse_rounding(settings.get("precision"))
    refuse_sharding(settings.get("strategy"))
    callbacks = [NamedProgressBar(label, leave, progress_options()), *options.pop("callbacks", [])]
    with _refusals():
        return quiet_trainer(**{"enable_progress_bar": True, **settings, **options}, callbacks=callbacks)


def make_tester(settings: Mapping[str, Any], label: str) -> Trainer:
    """The same for a test whose scores are reported.

    Of several processes each scores all of the data: Lightning's own sampler would give all the same number of
    examples, some of them twice, and the scores would count those twice.

    Args:
        settings: accelerator, devices, precision, strategy.
        label: of the progress bar.

    Raises:
        InputError: settings that the Trainer refuses, or a precision that rounds the models.
    """
    return make_trainer(settings, label, use_distributed_sampler=False)


def device_of(accelerator: str) -> torch.device | None:
    """The GPU that this process matches on, for an accelerator in the words of a Trainer.

    Args:
        accelerator: ``auto``, ``gpu``, ``cuda``, ``cpu`` or another one.

    Returns:
        Of several processes each its own; None for the processor. Apple's GPUs compute nothing in float64, which
        decompositions take, so that models are matched beside them.

    Raises:
        InputError: a GPU is asked for, and there is none.
    """
    if torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda"):
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    has_other = accelerator == "gpu" and torch.backends.mps.is_available()
    if accelerator in ("gpu", "cuda") and not has_other:
        raise InputError(f"accelerator is {accelerator!r}, and no GPU is seen here; expected auto or cpu")
    return None


def refuse_many_devices(devices: object) -> None:
    """Refuse a number of devices that no machine has, before a list of them is made.

    Args:
        devices: of a Trainer: a number, also as text, a list, or a word.

    Raises:
        InputError: more than `MOST_DEVICES`.
    """
    number = int(devices) if isinstance(devices, str) and devices.isdecimal() and len(devices) < 20 else devices
    if isinstance(number, int) and number > MOST_DEVICES:
        raise InputError(f"devices is {number}; expected at most {MOST_DEVICES:,}")


def unusual_precision(precision: object) -> str | None:
    """The precision of passes where it is another than usual, under whichever of its names; else None.

    Args:
        precision: of a Trainer, as it is given to it; None for the usual one.
    """
    name = Devices.precision if precision is None else str(precision)
    name = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}.get(name, name)
    return None if name == Devices.precision else name


def refuse_rounding(precision: object) -> None:
    """Refuse a precision in which a Trainer rounds the models themselves.

    Args:
        precision: of a Trainer, as it is given to it or read from it.

    Raises:
        InputError: one of `ROUNDING`.
    """
    if str(precision) in ROUNDING:
        raise InputError(
            f"precision is {precision!r}, which rounds the models; expected 32-true, 64-true, bf16-mixed or 16-mixed"
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """Say in one line what the Trainer does not take."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError, MisconfigurationException) as error:
        text = first_line(error)
        if re.search("no .* backend found", text, re.IGNORECASE):
            text = "accelerator names a GPU, and this machine has none; expected --accelerator cpu, or auto"
        raise InputError(text) from error
