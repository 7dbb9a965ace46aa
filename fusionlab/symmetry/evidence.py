"""Evidence of a symmetry: the groups that were tried on a space, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fusionlab.symmetry.groups import Group


class Outcome(StrEnum):
    """The outcome for a group that was tried, the best first."""

    TAKEN = "taken"
    UNSEEN = "unseen"
    CHANGED = "changed"
    UNTRIED = "untried"


@dataclass(frozen=True)
class Trial:
    """A group that was tried on a space.

    Attributes:
        group: of the size that the space has in the model that was traced.
        outcome: ``taken``: the outputs stay, and a part of the element alone changes them. ``changed``: they change.
            ``unseen``: they stay, but so they do with a part of the element alone, which shows no symmetry.
            ``untried``: no axes say where it would act.
        change: of the outputs in float64, relative to the largest, the largest of the elements that were tried; None
            where they could not be computed.
        folded: the gains of norms were folded first.
    """

    group: Group
    outcome: Outcome
    change: float | None = None
    folded: bool = False


def best_of_each(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The best outcome of each group, which may have been tried on several sets of axes; in order of the first."""
    order = list(Outcome)
    best: dict[tuple[Group, bool], Trial] = {}
    for trial in trials:
        key = trial.group, trial.folded
        if key not in best or order.index(trial.outcome) < order.index(best[key].outcome):
            best[key] = trial
    return tuple(best.values())
