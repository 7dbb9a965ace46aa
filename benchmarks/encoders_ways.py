"""Ways from two fine-tuned BERTs of different seeds to one, and which pairs they are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from pair_plan import PairPlan
from ways import DISTILLED, Given, Way, transport

# Seeds of the encoders that are fine-tuned on the first set and on the second, and so of both models. Test pairs make a
# ring, so that each encoder is the first of one and the second of another.
TUNING = ((11, 12), (12, 11))
TEST = ((1, 2), (2, 3), (3, 4), (4, 5), (5, 1))
SEEDS = (0, 1, 2)
# Of whatever learns, and texts in each.
STEPS, AT_ONCE = 600, 32

RATES: tuple[Given, ...] = ({}, {"learning_rate": 0.0025}, {"learning_rate": 0.005}, {"learning_rate": 0.02})
# What begins farther from both models has farther to go.
FAR: tuple[Given, ...] = ({}, {"learning_rate": 5e-4}, {"learning_rate": 1e-3})
NEAR: tuple[Given, ...] = ({}, {"learning_rate": 1.25e-4}, {"learning_rate": 5e-4})
ALPHAS: tuple[Given, ...] = ({}, {"alpha": 0.7}, {"alpha": 0.99})


def _learned() -> Iterator[Way]:
    """Learned matching and its two rivals."""
    yield Way("**`learned`**", "texts", "learned", grid=RATES)
    yield Way("distilled from the plain mean", "texts", "none", DISTILLED, FAR)
    yield Way("distilled from the mean after `weights`", "texts", "weights", DISTILLED, NEAR)


LEARNING = tuple(_learned())
WAYS = (
    Way("plain mean", "none", "none"),
    Way("the paper's matching", "none", "paper"),
    Way("permutations (Git Re-Basin)", "none", "git-rebasin"),
    Way("optimal transport (OT-WTS)", "none", "none", "ot", transport(0.03, 0.12)),
    Way("`weights`", "none", "weights"),
    Way("RegMean", "texts", "none", "regmean", ALPHAS),
    Way("optimal transport (OT-ACTS)", "texts", "none", "ot", transport(0.03, 0.12, features="activations")),
    Way("`activations`", "texts", "activations"),
    Way("`weights`, merged by RegMean", "texts", "weights", "regmean", ALPHAS),
    *LEARNING,
)
PLAN = PairPlan(TUNING, TEST, WAYS, SEEDS, STEPS, lambda cell: fmean(cell["scores"]))
