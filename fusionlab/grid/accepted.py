"""The part of a grid that one group of models takes; a method or matching that it refuses stops no other cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fusionlab.errors import InputError
from fusionlab.fusion import Fuser, FusionPlan

Make = Callable[[FusionPlan], Fuser]


def fuser_of(make: Make, plan: FusionPlan) -> Fuser:
    """The fuser of a group with all methods and matchings that it takes, each of which is tried alone.

    Args:
        make: a fuser of the group by a plan.
        plan: of the whole grid.

    Raises:
        InputError: models that do not fit each other, whatever is done with them.
    """
    try:
        return make(plan)
    except InputError:
        methods = {name: values for name, values in plan.methods.items() if _takes(make, _only(plan, name))}
        matchings = {name: one for name, one in plan.matchings.items() if _takes(make, _only(plan, matching=name))}
        if len(methods) == len(plan.methods) and len(matchings) == len(plan.matchings):
            raise
        return make(replace(plan, methods=methods or {"simple": {}}, matchings=matchings))


def fuser_for(fuser: Fuser, make: Make, plan: FusionPlan, method: str, matching: str) -> Fuser:
    """The fuser that makes one merge: that of the group, where it takes method and matching.

    Args:
        fuser: of the group, see `fuser_of`.
        make: a fuser of the group by a plan.
        plan: of the whole grid.
        method: of the merge.
        matching: of the merge; ``none`` for none.

    Raises:
        InputError: what the group does not take, in its own words.
    """
    if method in fuser.plan.methods and (matching in fuser.plan.matchings or matching not in plan.matchings):
        return fuser
    return make(_only(plan, method, matching))


def _only(plan: FusionPlan, method: str | None = None, matching: str | None = None) -> FusionPlan:
    """A plan with one method and one matching of another; the plain mean, or none, where none is named."""
    methods = {"simple": {}} if method is None else {method: plan.methods[method]}
    return replace(
        plan, methods=methods, matchings={name: one for name, one in plan.matchings.items() if name == matching}
    )


def _takes(make: Make, plan: FusionPlan) -> bool:
    try:
        make(plan)
    except InputError:
        return False
    return True
