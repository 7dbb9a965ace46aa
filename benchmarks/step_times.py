"""What a step of learned matching takes, and one of distillation of the same batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

import fusionlab
from fusionlab.polish import PolishOptions, polish
from fusionlab.trainers import quiet_factory

LEARNING, DISTILLATION = "learning", "distillation"


def descents(
    models: Sequence[nn.Module], inputs: list[dict[str, Tensor]], size: int, trainer: Mapping[str, Any]
) -> dict[str, Callable[[int], object]]:
    """Learned matching and a distillation by name, each from its number of steps.

    Args:
        models: two of one architecture.
        inputs: batches without labels.
        size: of the batch of a step.
        trainer: arguments of the Trainer.
    """

    def learn(count: int) -> None:
        how: dict[str, Any] = {"steps": count, "batch_size": size, "every": 0, "temperatures": 2, "sweeps": 1}
        fusionlab.align(models, preset="learned", data=inputs, trainer=trainer, **how)

    def distil(count: int) -> None:
        options = PolishOptions(steps=count, batch_size=size, learning_rate=1e-5)
        polish(models[0], models, inputs, options, quiet_factory(trainer))

    return {LEARNING: learn, DISTILLATION: distil}


def seconds_a_step(
    descend: Callable[[int], object], less: int, more: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one step: of more steps without those of fewer, so that what is done once is in neither.

    Args:
        descend: takes so many steps.
        less: steps of a short descent.
        more: of a longer one.
        clock: in seconds.
    """
    times = []
    for count in (less, more):
        start = clock()
        descend(count)
        times.append(clock() - start)
    return (times[1] - times[0]) / (more - less)
