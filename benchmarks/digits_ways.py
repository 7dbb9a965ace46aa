"""Ways from two digit models of different seeds to one model, and the settings that are tried of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from fusionlab.matching.options import MatchOptions

Seen = Literal["none", "synthetic", "images"]
Given = dict[str, Any]
DISTILLED, MEAN = "distilled", "simple"


@dataclass(frozen=True)
class Way:
    """A way to one model.

    Attributes:
        name: of its row.
        seen: what it looks at: nothing, synthetic inputs, or training images without labels.
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


RATES: tuple[Given, ...] = ({}, {"learning_rate": 0.005}, {"learning_rate": 0.02})
ADAMW: tuple[Given, ...] = tuple({"optimizer": "adamw", "learning_rate": rate} for rate in (0.02, 0.04, 0.08))
DISTILLATIONS: tuple[Given, ...] = ({}, {"learning_rate": 5e-4}, {"learning_rate": 2e-3}, {"learning_rate": 4e-3})


def transport(*regularizations: float, **given: Any) -> tuple[Given, ...]:
    """Regularizations of optimal transport, and permutations."""
    soft = tuple(given | {"regularization": value} for value in regularizations)
    return (given, *soft, given | {"solver": "exact"})


def _closed(seen: Seen) -> Way:
    """Twins by weights, whose maps are merged by what they read: no descent."""
    grid: tuple[Given, ...] = ({}, {"alpha": 0.7}, {"alpha": 0.99}, {"relative": 1.0}, {"relative": 1.0, "alpha": 0.99})
    return Way("`weights`, merged by RegMean", seen, "weights", "regmean", grid)


def _by_adamw(seen: Seen) -> Way:
    """Learned matching by the other optimizer."""
    return Way("`learned`, by AdamW", seen, "learned", grid=ADAMW, variant="adamw")


def _learned(seen: Seen) -> Iterator[Way]:
    """Learned matching and its two rivals."""
    yield Way("**`learned`**", seen, "learned", grid=RATES)
    yield Way("distilled from the plain mean", seen, "none", DISTILLED, DISTILLATIONS)
    yield Way("distilled from the mean after `weights`", seen, "weights", DISTILLED, DISTILLATIONS)


WAYS = (
    Way("plain mean", "none", "none"),
    Way("the paper's matching", "none", "paper"),
    Way("permutations (Git Re-Basin)", "none", "git-rebasin"),
    Way("optimal transport (OT-WTS)", "none", "none", "ot", transport(0.03, 0.12)),
    Way("`weights`", "none", "weights", grid=({}, {"relative": 0.25}, {"relative": 1.0})),
    _closed("synthetic"),
    *_learned("synthetic"),
    _by_adamw("synthetic"),
    Way(
        "optimal transport (OT-ACTS)", "images", "none", "ot",
        transport(0.03, 0.08, 0.12, features="activations"),
    ),
    Way("`activations`", "images", "activations"),
    _closed("images"),
    *_learned("images"),
    _by_adamw("images"),
)  # fmt: skip
# No data and no descent.
CLOSED = tuple(way for way in WAYS if way.seen != "images" and not way.learns)
LEARNING = {seen: tuple(_learned(seen)) for seen in ("synthetic", "images")}


def cell_name(split: str, pair: int, width: int, what: str) -> str:
    """A cell's name in the file."""
    return f"{split} {pair} {width} {what}"


def what(way: Way, given: Given, seed: int | None = None, count: int | None = None, steps: int | None = None) -> str:
    """What a cell of a way is, in its name.

    Args:
        way: to one model.
        given: its settings.
        seed: of learning.
        count: of images, where not all are seen.
        steps: of a distillation, where they are not those of the other rows.
    """
    parts = [way.key, json.dumps(given, sort_keys=True)]
    parts += [
        f"{name} {value}" for name, value in (("images", count), ("steps", steps), ("seed", seed)) if value is not None
    ]
    return " ".join(parts)


def split_options(way: Way, given: Given) -> tuple[Given, Given]:
    """The settings of a way's matching, and those of what follows it.

    Args:
        way: to one model.
        given: its settings.
    """
    if way.then == MEAN:
        return given, {}
    own = {field.name for field in fields(MatchOptions)}
    matching = {name: value for name, value in given.items() if name in own}
    return matching, {name: value for name, value in given.items() if name not in own}
