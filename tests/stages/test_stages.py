"""Stages: run one after another by one fit, their models left as they were, and no Trainer where there are none."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from fusionlab.errors import InputError
from fusionlab.stages import Run, Stage, StagedModule, Stages, result_of, run
from fusionlab.trainers import quiet_trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Adding(Stage[float]):
    """Adds numbers up; one that is negative is a fault."""

    def __init__(self, label: str, numbers: list[float], log: list[str]) -> None:
        self.label, self.numbers, self.log = label, numbers, log
        self.sum = 0.0

    def begin(self, run: Run) -> None:
        self.log.append(f"begin {self.label}")

    def batches(self, run: Run) -> Iterator[Tensor]:
        return (torch.tensor(number) for number in self.numbers)

    def step(self, run: Run, batch: Tensor) -> None:
        if batch < 0:
            raise InputError("a negative number")
        self.sum += float(batch)

    def finish(self, run: Run) -> float:
        self.log.append(f"finish {self.label}")
        return self.sum

    def end(self) -> None:
        self.log.append(f"end {self.label}")

    def pack(self, result: float) -> float:
        return result

    def unpack(self, packed: float) -> float:
        return packed


class Falling(Adding):
    """One number that steps of gradient descent on its square bring down; another has no gradient."""

    def __init__(self, log: list[str]) -> None:
        super().__init__("falling", [1.0, 1.0, 1.0], log)
        self.number, self.idle = nn.Parameter(torch.tensor(8.0)), nn.Parameter(torch.tensor(1.0))
        self._found: tuple[Optimizer, LRScheduler] | None = None

    @property
    def optimizer(self) -> tuple[Optimizer, LRScheduler] | None:
        return self._found

    def begin(self, run: Run) -> None:
        super().begin(run)
        optimizer = SGD([self.number, self.idle], lr=0.25, weight_decay=0.0)
        self._found = optimizer, LambdaLR(optimizer, lambda step: 1.0)

    def step(self, run: Run, batch: Tensor) -> Tensor:
        return batch * self.number.square()

    def finish(self, run: Run) -> float:
        super().finish(run)
        return float(self.number)


def made(trainers: list[Trainer]) -> Any:
    """A maker of Trainers that notes them."""

    def make() -> Trainer:
        trainers.append(quiet_trainer(accelerator="cpu", devices=1))
        return trainers[-1]

    return make


def test_stages_follow_one_another_in_one_fit() -> None:
    """Each is sent its result before the next is asked for; all under one Trainer, an epoch each."""
    log: list[str] = []

    def code() -> Stages[tuple[float, ...]]:
        first = yield from result_of(Adding("first", [1, 2], log))
        log.append(f"between, {first:g}")
        second = yield from result_of(Adding("second", [first, 4, 5], log))
        empty = yield from result_of(Adding("empty", [], log))
        fallen = yield from result_of(Falling(log))
        return first, second, empty, fallen

    trainers: list[Trainer] = []
    assert run(code(), made(trainers)) == (3, 12, 0, 1)
    (trainer,) = trainers
    assert trainer.current_epoch == 4
    assert trainer.global_step == 3
    assert log == [
        "begin first", "finish first", "end first", "between, 3", "begin second", "finish second", "end second",
        "begin empty", "finish empty", "end empty", "begin falling", "finish falling", "end falling",
    ]  # fmt: skip


def test_no_trainer_is_made_where_there_is_no_stage() -> None:
    def code() -> Stages[int]:
        yield from ()
        return 7

    trainers: list[Trainer] = []
    assert run(code(), made(trainers)) == 7
    assert trainers == []


def test_a_fault_leaves_models_as_they_were() -> None:
    """Whether a stage fails, or the code between two."""
    log: list[str] = []
    with pytest.raises(InputError, match="a negative number"):
        run(result_of(Adding("failing", [1, -1], log)), made([]))
    assert log == ["begin failing", "end failing"]

    def code() -> Stages[float]:
        first = yield from result_of(Adding("first", [1], log))
        raise InputError(f"{first:g} is not enough")

    log.clear()
    with pytest.raises(InputError, match="1 is not enough"):
        run(code(), made([]))
    assert log == ["begin first", "finish first", "end first"]


def test_what_has_no_gradient_is_not_decayed() -> None:
    """Its gradient stays None, which AdamW leaves alone."""
    stage = Falling([])
    run(result_of(stage), made([]))
    assert stage.idle.grad is None
    assert stage.idle.item() == 1


class Sum(StagedModule):
    """A fit of one stage."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log_of_stages = log

    def stages(self) -> Stages[float]:
        return result_of(Adding("numbers", [1, 2, 3], self.log_of_stages))


def test_another_fit_ends_the_stage_that_the_last_one_stopped_in() -> None:
    """Before it begins anew; a fit that is told to stop raises nothing that would end the stage."""

    class Stop(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            trainer.should_stop = True

    log: list[str] = []
    module = Sum(log)
    quiet_trainer(accelerator="cpu", devices=1, callbacks=[Stop()]).fit(module)
    assert log == ["begin numbers"]
    quiet_trainer(accelerator="cpu", devices=1).fit(module)
    assert log == ["begin numbers", "end numbers", "begin numbers", "finish numbers", "end numbers"]
    assert module.outcome == 6


def test_a_fit_that_is_stopped_between_two_stages_says_so() -> None:
    """And which one was to come."""

    class Stop(Callback):
        def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
            trainer.should_stop = True

    def code() -> Stages[float]:
        first = yield from result_of(Adding("first", [1], []))
        return first + (yield from result_of(Adding("second", [2], [])))

    with pytest.raises(InputError, match="the fit was stopped before 'second'; expected it to run to its end"):
        run(code(), lambda: quiet_trainer(accelerator="cpu", devices=1, callbacks=[Stop()]))


def test_a_total_is_the_sum_over_processes() -> None:
    """Of a strategy with three processes that all hold the same; one process asks nobody."""

    def reduce(part: Tensor, group: object = None, reduce_op: str = "mean") -> Tensor:
        return {"sum": 3 * part, "mean": part}[reduce_op]

    module, part = Sum([]), torch.tensor([1.0, 2.0])
    assert torch.equal(module.total(part), part)
    several: Any = SimpleNamespace(world_size=3, strategy=SimpleNamespace(reduce=reduce))
    module._trainer = several
    assert torch.equal(module.total(part), 3 * part)
