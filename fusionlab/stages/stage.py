"""The interface of a stage, and how code that needs the results of stages is written.

Such code is a generator: it yields a stage wherever it needs one, and is sent the stage's result. So it reads like
plain code, and whoever drives it decides how stages are run (`fusionlab.stages.module`).

>>> def merged(models, batches) -> Stages[nn.Module]:
...     statistics = yield from result_of(Gathering(models[0], batches, ["gram"]))
...     return merge(models, statistics)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Any, Generic, Protocol, TypeVar

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fusionlab.models import borrowed
from fusionlab.sharding import shared_out
from fusionlab.types import Model

Result = TypeVar("Result")


class Run(Protocol):
    """The module that runs a stage, in one of several processes."""

    @property
    def trainer(self) -> Trainer:
        """The Trainer, whose precision is to be used."""

    @property
    def device(self) -> torch.device:
        """The device to compute on."""

    @property
    def global_rank(self) -> int:
        """The process's number, from 0."""

    @property
    def processes(self) -> int:
        """The number of processes."""

    @property
    def mesh(self) -> DeviceMesh | None:
        """The processes that models are shared out over; None where each holds them whole."""

    def total(self, part: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""


def placed(run: Run, model: Model, is_converted: bool = True) -> Model:
    """A model where a stage runs it: itself on the run's device, or a module of which each process holds a part.

    Args:
        run: the module that runs the stage.
        model: not modified where it is shared out.
        is_converted: whether it is brought to the Trainer's precision.
    """
    found: Model = model.to(run.device) if run.mesh is None else borrowed(model)
    if is_converted:
        run.trainer.precision_plugin.convert_module(found)
    return found if run.mesh is None else shared_out(found, run.mesh)


class Stage(ABC, Generic[Result]):
    """A pass over data or a descent, run as one epoch of a fit.

    It is run once: `begin`, then `step` for each of its `batches`, then `finish`; `end` in any case. Of several
    processes each runs it, on its share of every batch; all must go through the same number of batches and find the
    same result.

    Attributes:
        label: what the progress bar and the logs call it.
        steps: how many batches there are; None where that is not known before.
    """

    label: str = ""
    steps: int | None = None

    @abstractmethod
    def begin(self, run: Run) -> None:
        """Prepare for the first batch.

        Args:
            run: the module that runs the stage.
        """

    @abstractmethod
    def batches(self, run: Run) -> Iterator[Any]:
        """The batches that are still to be done, on the CPU."""

    @abstractmethod
    def step(self, run: Run, batch: Any) -> Tensor | None:
        """Do one batch, which is on the run's device.

        Returns:
            The loss, where the stage is a descent; its gradient is summed over processes.
        """

    @abstractmethod
    def finish(self, run: Run) -> Result:
        """The result, once all batches are done; the same in every process."""

    @abstractmethod
    def pack(self, result: Result) -> Any:
        """A result as tensors, numbers, strings, lists and dicts, for a checkpoint."""

    @abstractmethod
    def unpack(self, packed: Any) -> Result:
        """The result that `pack` was given."""

    def prepare(self, run: Run, batch: Any) -> None:
        """Do what comes before the step on one batch, in full precision."""

    def end(self) -> None:
        """Leave the models as they were, whether or not all batches were done."""

    @property
    def optimizer(self) -> tuple[Optimizer, LRScheduler] | None:
        """The optimizer of a descent with its schedule of learning rates, once the stage has begun."""
        return None

    def state(self) -> dict[str, Any] | None:
        """The state that a checkpoint needs to go on in the middle of the stage; None to start it again."""
        return None

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state; called after `begin`."""


Stages = Generator[Stage[Any], Any, Result]


def result_of(stage: Stage[Result]) -> Stages[Result]:
    """The result of a stage, once somebody has run it."""
    try:
        found: Result = yield stage
        return found
    finally:
        stage.end()
