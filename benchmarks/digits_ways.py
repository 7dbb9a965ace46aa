"""Ways from two digit models of different seeds to one model."""

from __future__ import annotations

from collections.abc import Iterator

from ways import DISTILLED, Given, Seen, Way, transport

RATES: tuple[Given, ...] = ({}, {"learning_rate": 0.005}, {"learning_rate": 0.02})
ADAMW: tuple[Given, ...] = tuple({"optimizer": "adamw", "learning_rate": rate} for rate in (0.02, 0.04, 0.08))
DISTILLATIONS: tuple[Given, ...] = ({}, {"learning_rate": 5e-4}, {"learning_rate": 2e-3}, {"learning_rate": 4e-3})


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
# Of few inputs, what is learned from them without synthetic ones beside them.
ALONE: Given = {"synthetic": 0}
LEARNING = {seen: tuple(_learned(seen)) for seen in ("synthetic", "images")}


def cell_name(split: str, pair: int, width: int, what: str) -> str:
    """A cell's name in the file."""
    return f"{split} {pair} {width} {what}"
