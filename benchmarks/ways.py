"""Ways from two models to one: how they are matched, what then, and the settings that are tried of each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any, Literal

from torch import nn

import fusionlab
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions, polish
from fusionlab.trainers import quiet_factory

Seen = Literal["none", "synthetic", "images", "texts"]
Given = dict[str, Any]
DISTILLED, MEAN = "distilled", "simple"


@dataclass(frozen=True)
class Way:
    """A way to one model.

    Attributes:
        name: of its row.
        seen: what it looks at: nothing, synthetic inputs, or training images or texts without labels.
        preset: of the matching; ``none`` leaves the models in their own bases.
        then: a merge method of the twins, or `DISTILLED` for a distillation of both that begins at their plain mean.
        grid: settings that are tried on the tuning pairs, the defaults first.
        variant: of another way that sees, matches and merges the same.
    """

    name: str
    seen: Seen
    preset: str
    then: str = MEAN
    grid: tuple[Given, ...] = ({},)
    variant: str = ""

    @property
    def learns(self) -> bool:
        """Whether it draws inputs, so that its seed matters."""
        return self.preset == "learned" or self.then == DISTILLED

    @property
    def key(self) -> str:
        """What its cells are named by."""
        return " ".join(filter(None, (self.seen, self.preset, self.then, self.variant)))

    def options(self, given: Given) -> tuple[Given, Given]:
        """Some settings of it: those of its matching, and those of what follows that."""
        if self.then == MEAN:
            return given, {}
        own = {field.name for field in fields(MatchOptions)}
        matching = {name: value for name, value in given.items() if name in own}
        return matching, {name: value for name, value in given.items() if name not in own}


@dataclass(frozen=True)
class Made:
    """What a way made.

    Attributes:
        model: the one of two.
        twins: of both, that it is made of or begins at.
        seconds: of processor time.
    """

    model: nn.Module
    twins: Sequence[nn.Module]
    seconds: float


def transport(*regularizations: float, **given: Any) -> tuple[Given, ...]:
    """Regularizations of optimal transport, and permutations."""
    soft = tuple(given | {"regularization": value} for value in regularizations)
    return (given, *soft, given | {"solver": "exact"})


def what(way: Way, given: Given, seed: int | None = None, **how: int | None) -> str:
    """What a cell of a way is, in its name.

    Args:
        way: to one model.
        given: its settings.
        seed: of learning.
        how: what else differs from other cells of it, where it does.
    """
    parts = [way.key, json.dumps(given, sort_keys=True)]
    parts += [f"{name} {value}" for name, value in {**how, "seed": seed}.items() if value is not None]
    return " ".join(parts)


def best_of(grid: Sequence[Given], cells: Callable[[Given], Sequence[Mapping[str, float]]]) -> Given:
    """The settings of the highest mean accuracy, of the lowest mean loss among equals.

    Args:
        grid: that were tried.
        cells: of some settings what every tuning pair has.
    """

    def reached(given: Given) -> tuple[float, float]:
        found = cells(given)
        return round(fmean(cell["accuracy"] for cell in found), 6), -fmean(cell["loss"] for cell in found)

    return max(grid, key=reached)


def equal_steps(steps: int, seconds: float, own: float) -> int:
    """How many steps of a way take as long as another one's, to the nearest ten, at least one.

    Args:
        steps: that both were measured with.
        seconds: of the other one.
        own: of this one.
    """
    return max(1, round(steps * seconds / own / 10) * 10)


def make(
    way: Way,
    given: Given,
    ends: Sequence[nn.Module],
    inputs: Any,
    learning: Mapping[str, Any],
    seed: int = 0,
    precision: str = "32-true",
) -> Made:
    """One model of two by a way.

    Args:
        way: to it.
        given: its settings.
        ends: both models; the second is the anchor.
        inputs: that it looks at: batches, or a list of them for each model; None where it looks at nothing.
        learning: options of whatever learns, such as its steps.
        seed: of learning.
        precision: of whatever looks at inputs.
    """
    start, passes = time.process_time(), {"devices": 1, "precision": precision}
    options: dict[str, Any] = {"data": inputs, "trainer": passes} if recipe(way.preset).needs_inputs else {}
    if way.preset == "learned":
        options |= {"seed": seed, **learning}
    own, others = way.options(given)
    twins = fusionlab.align(ends, anchor=1, preset=way.preset, **options, **own)
    if way.then == DISTILLED:
        how = PolishOptions(seed=seed, **learning, **others)
        merge = polish(fusionlab.merge(twins), ends, inputs, how, quiet_factory(passes))
    else:
        merge = fusionlab.merge(twins, way.then, data=inputs, **others)
    return Made(merge, twins, time.process_time() - start)
