"""The stage of every descent: inputs with what the end models return for them, and steps of AdamW."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fusionlab.learning.batches import ANSWERS, BATCH, DistillationBatch, draws, sources
from fusionlab.learning.collecting import collect
from fusionlab.learning.distillation import Targets, teacher_targets
from fusionlab.learning.supplement import Supplement, like_given
from fusionlab.merge_weights import merge_weights
from fusionlab.sharding import kept_whole, let_go, load_module, load_optimizer
from fusionlab.stages import Run, Stage, placed

Result = TypeVar("Result")
# A loss, the mean over some rows, and how many rows those are.
Mean = tuple[Tensor, Tensor]


class DescentOptions(Protocol):
    """The options of every descent; see `RefineOptions` and `PolishOptions`."""

    @property
    def steps(self) -> int: ...
    @property
    def batch_size(self) -> int | None: ...
    @property
    def mixtures(self) -> int: ...
    @property
    def synthetic(self) -> int: ...
    @property
    def seed(self) -> int: ...


class Descent(Stage[Result]):
    """Steps on batches of inputs with distillation targets; a subclass says what is learned, and by which loss.

    Every process draws the same batches and does its share of each, so that several take the steps of one.

    Attributes:
        teachers: the end models, in eval mode, on the run's device once it has begun.
        done: how many steps were taken.

    Args:
        label: see `Stage`.
        learned: what is trained, moved to the run's device.
        teachers: the end models; not modified.
        batches: inputs: an iterable of batches that all end models teach on, or a sequence with one such iterable for
            each, which alone teaches there. Read once, and only as far as the steps need and memory allows.
        options: how many steps, on how many examples each.
        known: for each end model which labels it knows, bool of shape ``(classes,)``; all if None.
        with_targets: whether what the end models return is the target; labels are kept where it is not.
        weights: how much each end model teaches, scaled to sum to 1; all alike if None.

    Raises:
        InputError: no batch, another number of sources than of end models, or weights that do not fit.
    """

    def __init__(
        self,
        label: str,
        learned: nn.Module,
        teachers: Sequence[nn.Module],
        batches: Any,
        options: DescentOptions,
        known: Sequence[Tensor] | None = None,
        with_targets: bool = True,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.label, self.steps = label, options.steps
        self.learned, self.teachers, self.known = learned, list(teachers), known
        self.weights = merge_weights(weights, len(self.teachers)) if self.teachers else []
        self.done = 0
        self._is_over = False
        self._how, self._with_targets = options, with_targets
        self._sources = sources(batches, len(self.teachers))
        self._batches: Iterator[list[DistillationBatch]] = iter(())
        self._optimizer: tuple[Optimizer, LRScheduler] | None = None

    @abstractmethod
    def make_optimizer(self) -> tuple[Optimizer, LRScheduler]:
        """The optimizer, and a schedule that is advanced after every step."""

    @property
    def optimizer(self) -> tuple[Optimizer, LRScheduler] | None:
        """The optimizer with its schedule, once the stage has begun."""
        return self._optimizer

    def begin(self, run: Run) -> None:
        """Ask the end models for the targets, where the descent will run."""
        models = self.teachers
        self.teachers = [placed(run, model, is_converted=False) for model in models]
        options = self._how
        wanted = max(1, options.steps * (options.batch_size or BATCH) // len(self._sources))
        answers = None if options.batch_size else options.steps * ANSWERS // len(self._sources)
        # Models that several processes share the parts of are whole before they are placed.
        like = like_given(models, options.seed)
        more = Supplement(options.mixtures, options.synthetic, like, options.seed)
        how: Any = {"known": self.known, "weights": self.weights, "supplement": more, "answers": answers}
        pools = [
            collect(self.teachers, source, own, wanted, self._with_targets, **how) for own, source in self._sources
        ]
        self._let_go_of_teachers(models)
        self.teachers = [placed(run, model) for model in models]
        self.place(run)
        self._batches = draws(pools, options.steps, options.batch_size, options.seed)
        self._optimizer = self.make_optimizer()

    def _let_go_of_teachers(self, models: list[nn.Module]) -> None:
        """Have the end models as they were given in place of those that are run."""
        let_go(*self.teachers)
        self.teachers = models

    def forget(self) -> None:
        """Let go of all but what was learned, once no step is left."""
        self._let_go_of_teachers([])
        if self._optimizer is not None:
            self._optimizer[0].zero_grad()
            self._optimizer[0].state.clear()
        self._is_over = True

    def end(self) -> None:
        """Let go of the rest, unless steps are left that a checkpoint may still go on with."""
        if self._is_over:
            let_go(self.learned)

    def place(self, run: Run) -> None:
        """Bring what is trained to where the descent runs."""
        self.learned = placed(run, self.learned)

    def batches(self, run: Run) -> Iterator[list[DistillationBatch]]:
        """Batches of the steps that are left, one of every source in each."""
        return itertools.islice(self._batches, self.done, None)

    def step(self, run: Run, batch: list[DistillationBatch]) -> Tensor:
        """The loss on one batch of every source."""
        loss = self.loss(run, batch)
        self.done += 1
        return loss

    @abstractmethod
    def loss(self, run: Run, batch: Sequence[DistillationBatch]) -> Tensor:
        """This process's share of the loss; the shares of all sum to it."""

    def targets(self, batch: DistillationBatch) -> Targets:
        """The targets of a batch, computed where they were too large to keep."""
        return batch.targets or teacher_targets(self.teachers, batch.inputs, batch.own, self.known, self.weights)

    def state(self) -> dict[str, Any]:
        """The learned parameters, their moments and rates, and the number of steps taken."""
        assert self._optimizer is not None
        optimizer, schedule = self._optimizer
        return {
            "learned": kept_whole(self.learned.state_dict()),
            "optimizer": kept_whole(optimizer.state_dict()),
            "schedule": schedule.state_dict(),
            "done": self.done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on after the steps that were taken."""
        assert self._optimizer is not None
        optimizer, schedule = self._optimizer
        load_module(self.learned, state["learned"])
        load_optimizer(optimizer, state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        self.done = state["done"]


def share_of_mean(run: Run, batch: DistillationBatch, mean: Callable[[DistillationBatch], Mean]) -> Tensor:
    """This process's share of a mean over a batch; the shares of all processes sum to it.

    Args:
        run: the module that runs the stage.
        batch: the same in every process.
        mean: the mean over the rows of a batch or a part of it, and how many rows that has.
    """
    if run.processes == 1 or not batch.is_divisible:
        return mean(batch)[0] / run.processes
    parts = batch.split(run.processes)
    if run.global_rank < len(parts):
        loss, rows = mean(parts[run.global_rank])
    elif run.mesh is not None:
        # A part that counts for nothing: what is shared out is run by all processes or by none.
        loss, rows = mean(parts[0])
        rows = torch.zeros_like(rows)
    else:
        loss, rows = torch.zeros((), device=run.device), torch.zeros((), device=run.device)
    return loss * (rows / run.total(rows).clamp_min(1))
