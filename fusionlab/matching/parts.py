"""Matching a part of the parameters at a time, where no space that is matched meets another one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fusionlab.matching.align import gauged, in_one_basis
from fusionlab.matching.blocks import blocks, waves
from fusionlab.matching.groups import geometry
from fusionlab.matching.matchers.registry import Models
from fusionlab.matching.options import BALANCED, MatchOptions
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.blueprint import BIASES
from fusionlab.symmetry.parts import parts
from fusionlab.types import State


@dataclass(frozen=True)
class Part:
    """Some of the parameters of models, which can be matched without the others.

    Attributes:
        blueprint: of these parameters, in the gauge.
        options: what is matched there and how; None where nothing is.
        gauge: that all models are brought into.
    """

    blueprint: Blueprint
    options: MatchOptions | None
    gauge: tuple[str, ...]

    def matched(self, states: Sequence[State], anchor: int) -> tuple[list[Alignment], list[Alignment]]:
        """The alignments that bring models into the gauge, and those that bring them into one basis.

        Args:
            states: these parameters by name, one mapping for each model; not modified.
            anchor: index of the anchor.
        """
        chosen = MatchOptions(spaces=(), gauge=self.gauge) if self.options is None else self.options
        described, gauges = gauged(states, self.blueprint, chosen)
        if self.options is None:
            return gauges, gauges
        twins = [gauge.apply(state) for gauge, state in zip(gauges, states, strict=True)]
        return gauges, in_one_basis(Models(twins, described, anchor), gauges, chosen)


def separated(
    blueprint: Blueprint, options: MatchOptions, tied: Iterable[Collection[str]] = ()
) -> tuple[Blueprint, list[Part]] | None:
    """The blueprint in the options' gauge, and the parts that models are matched by.

    Args:
        blueprint: of the models.
        options: what is matched and how.
        tied: names that stand for one parameter each.

    Returns:
        None where spaces that are matched meet on one parameter (the residual stream meets all others), so that a
        part would be nearly everything.

    Raises:
        InputError: spaces or layers that the architecture does not have.
    """
    described = blueprint.in_gauge(options.gauge)
    chosen = options.select(described)
    if not chosen or len(waves(blocks(chosen, described), described)) > 1:
        return None
    looked_at = {space.name for space in (*chosen, *_of_the_gauge(described, options.gauge))}
    names = {space.name for space in chosen}
    found = []
    for part in parts(described, looked_at, tied):
        inside = [space for space in part.spaces.values() if space.name in names]
        own = _of_part(options, inside) if inside else None
        if own is not None and {space.name for space in own.select(part)} != {space.name for space in inside}:
            return None
        found.append(Part(part, own, options.gauge))
    return described, found


def of_the_gauge(
    blueprint: Blueprint, options: MatchOptions, tied: Iterable[Collection[str]] = ()
) -> tuple[Blueprint, list[Part]]:
    """The blueprint in the options' gauge, and the parts that models are brought into it by; none is matched alone.

    Args:
        blueprint: of the models.
        options: what is matched and how.
        tied: names that stand for one parameter each.
    """
    described = blueprint.in_gauge(options.gauge)
    looked_at = {space.name for space in _of_the_gauge(described, options.gauge)}
    return described, [Part(part, None, options.gauge) for part in parts(described, looked_at, tied)]


def _of_the_gauge(blueprint: Blueprint, gauge: Collection[str]) -> list[Space]:
    """The spaces that are looked at when a model is brought into a gauge, whether they are matched or not."""
    return [
        space
        for space in blueprint.spaces.values()
        if (BIASES in gauge and space.group.is_general_linear)
        or (BALANCED in gauge and geometry(space.group).has_balance)
    ]


def _of_part(options: MatchOptions, spaces: Sequence[Space]) -> MatchOptions:
    """The same options for the spaces of a part alone."""
    layers = sorted({space.layer for space in spaces if space.layer is not None})
    return replace(
        options,
        spaces=tuple(dict.fromkeys(str(space.role) for space in spaces)),
        layers=",".join(map(str, layers)) or "all",
    )
