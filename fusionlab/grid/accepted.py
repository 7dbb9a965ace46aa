"""The part of a grid that one group of models takes; a method or matching that it refuses stops no other cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fusionlab.errors import InputError
from fusionlab.fusion import Fuser, FusionPlan

Make = Callable[[FusionPlan], Fuser]


class Accepted:
    """Fusers of one group: one with all methods and matchings that it takes, and one for whatever else is asked for.

    Attributes:
        fuser: that with all that the group takes, each tried alone where it does not take all.

    Args:
        make: a fuser of the group by a plan.
        plan: of the whole grid.

    Raises:
        InputError: models that do not fit each other, whatever is done with them.
    """

    def __init__(self, make: Make, plan: FusionPlan) -> None:
        self._make, self._plan = make, plan
        try:
            self.fuser = make(plan)
        except InputError:
            methods = {name: values for name, values in plan.methods.items() if self._takes(name)}
            matchings = {name: one for name, one in plan.matchings.items() if self._takes(matching=name)}
            if len(methods) == len(plan.methods) and len(matchings) == len(plan.matchings):
                raise
            self.fuser = make(replace(plan, methods=methods or {"simple": {}}, matchings=matchings))

    def of(self, method: str, matching: str) -> Fuser:
        """The fuser that makes one merge.

        Args:
            method: of the merge.
            matching: of the merge; ``none`` for none.

        Raises:
            InputError: what the group does not take, in its own words.
        """
        taken = self.fuser.plan
        if method in taken.methods and (matching in taken.matchings or matching not in self._plan.matchings):
            return self.fuser
        return self._make(self._only(method, matching))

    def _takes(self, method: str | None = None, matching: str | None = None) -> bool:
        try:
            self._make(self._only(method, matching))
        except InputError:
            return False
        return True

    def _only(self, method: str | None, matching: str | None) -> FusionPlan:
        """The plan with one method and one matching; the plain mean, or none, where none is named."""
        methods = {"simple": {}} if method is None else {method: self._plan.methods[method]}
        matchings = {name: one for name, one in self._plan.matchings.items() if name == matching}
        return replace(self._plan, methods=methods, matchings=matchings)
