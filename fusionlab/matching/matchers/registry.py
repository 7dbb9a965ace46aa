"""The registry of matchers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

from fusionlab.errors import InputError
from fusionlab.matching.options import Selection
from fusionlab.matching.pair import Pair
from fusionlab.matching.team import ALONE, Team
from fusionlab.registration import annotation_of, first_parameters
from fusionlab.statistics import Activations
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.types import State

NEEDS = ("activations", "gradients")


@dataclass(frozen=True)
class Models:
    """Models to be brought into one basis, all in the gauge.

    Attributes:
        states: parameters by name, stacks as one, one mapping for each; not modified.
        blueprint: of all.
        anchor: index of the one that keeps its basis.
        activations: of each, at the same rows of the same data; None where the matcher does not need them.
        team: processes that match the same models together; a matcher that does not share its work lets each do all
            of it.
    """

    states: Sequence[State]
    blueprint: Blueprint
    anchor: int = 0
    activations: Sequence[Activations] | None = None
    team: Team = ALONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", [self.blueprint.stacked(state) for state in self.states])

    def each(self, match: Callable[[Pair], Alignment]) -> list[Alignment]:
        """An alignment for each model, by what matches one of them to the anchor."""
        return [
            Alignment.identity(self.blueprint) if index == self.anchor else match(self.pair(index))
            for index in range(len(self.states))
        ]

    def pair(self, index: int) -> Pair:
        """One of the models, and the anchor."""
        activations = None
        if self.activations is not None:
            activations = self.activations[index], self.activations[self.anchor]
        return Pair(self.states[index], self.states[self.anchor], self.blueprint, activations, team=self.team)


MatchFunction = Callable[[Models, Any], list[Alignment]]


@dataclass(frozen=True)
class Matcher:
    """A registered matcher.

    Attributes:
        name: in options and tables.
        function: from models and options to an alignment for each model; the anchor's is the identity.
        options: the class of its options.
        needs: some of `NEEDS`, for given options.
    """

    name: str
    function: MatchFunction
    options: type[Selection]
    needs: Callable[[Any], tuple[str, ...]]


MATCHERS: dict[type[Selection], Matcher] = {}


def matcher(
    name: str, needs: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
) -> Callable[[MatchFunction], MatchFunction]:
    """Register ``f(models, options) -> alignments`` as a matcher, found by the class of its options.

    Args:
        name: in options and tables; also a preset, with the options' defaults, where no preset is called so.
        needs: some of `NEEDS`, or what gives them for options.

    Raises:
        TypeError: a function of another signature, or options that are no class of its own derived from `Selection`.
    """

    def register(function: MatchFunction) -> MatchFunction:
        first_parameters(function, ("models", "options"), "the matcher")
        options = annotation_of(function, 1, "the matcher")
        if not (isinstance(options, type) and issubclass(options, Selection) and is_dataclass(options)):
            raise TypeError(
                f"the matcher {function.__name__!r} takes options of {options}; expected a dataclass derived from "
                f"Selection"
            )
        if options is Selection or ((known := MATCHERS.get(options)) is not None and known.name != name):
            raise TypeError(
                f"the matcher {function.__name__!r} takes options of {options.__name__}, which is no class of "
                f"its own; expected one derived from Selection"
            )
        MATCHERS[options] = Matcher(name, function, options, needs if callable(needs) else lambda _: tuple(needs))
        return function

    return register


def matchers() -> dict[str, Matcher]:
    """All matchers by name."""
    return {found.name: found for found in MATCHERS.values()}


def matcher_of(options: Selection) -> Matcher:
    """The matcher that options belong to.

    Raises:
        InputError: there is none.
    """
    if type(options) not in MATCHERS:
        known = ", ".join(kind.__name__ for kind in MATCHERS)
        raise InputError(f"options of {type(options).__name__} belong to no matcher; expected one of {known}")
    return MATCHERS[type(options)]
