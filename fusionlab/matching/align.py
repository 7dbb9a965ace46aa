"""Bring several models into one common basis."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.matching.gauge import balance
from fusionlab.matching.matchers.registry import Models, matcher_of
from fusionlab.matching.options import BALANCED, Selection
from fusionlab.matching.team import ALONE, Team
from fusionlab.matching.universe import mean_state
from fusionlab.matching.weights import squared_distance
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.statistics import Activations
from fusionlab.symmetry import Alignment, Blueprint

NEAREST = "nearest"


def choose_anchor(states: Sequence[Mapping[str, Tensor]], anchor: int | str | None = None) -> int:
    """The index of the model that the others are matched to.

    Args:
        states: parameters by name, one mapping for each model.
        anchor: an index, or ``nearest`` for the end model nearest to the mean of all (the first of two, which are
            always equally near); None is 0.

    Raises:
        InputError: not an index of a model.
    """
    if anchor is None:
        return 0
    refuse_anchor(anchor, len(states))
    return _nearest_to_mean(states) if anchor == NEAREST else int(anchor)


def refuse_anchor(anchor: int | str | None, count: int) -> None:
    """Refuse an anchor that `choose_anchor` would, before models are read.

    Args:
        anchor: see there.
        count: of the models.

    Raises:
        InputError: not an index of a model.
    """
    text = str(anchor)
    if anchor not in (None, NEAREST) and (not text.isdecimal() or int(text) >= count):
        raise InputError(f"anchor is {anchor!r}; expected {NEAREST!r} or an index from 0 to {count - 1}")


def align_states(
    states: Sequence[Mapping[str, Tensor]],
    blueprint: Blueprint,
    options: Selection,
    anchor: int = 0,
    activations: Sequence[Activations] | None = None,
    place: Workplace = HERE,
) -> list[Alignment]:
    """An alignment for each model, in order, such that all matched twins share one basis.

    The anchor keeps its basis, unless the options bring every model into a gauge first; also where all are matched to
    their mean. Two models are matched as a pair in any case.

    Args:
        states: parameters by name, one mapping for each model, all of `blueprint`; not modified.
        blueprint: of the models.
        options: of a matcher: what to match and how.
        anchor: index of the anchor.
        activations: of each model in the gauge, where the matcher needs them.
        place: where the matching is computed.
    """
    if not options.spaces:
        return [Alignment.identity(blueprint) for _ in states]
    brought = [place.brought(state) for state in states]
    described, gauges = gauged(brought, blueprint, options, place.team)
    twins = [gauge.apply(state) for gauge, state in zip(gauges, brought, strict=True)]
    found = in_one_basis(Models(twins, described, anchor, activations, place.team), gauges, options)
    return [place.found(alignment) for alignment in found]


def in_one_basis(models: Models, gauges: Sequence[Alignment], options: Selection) -> list[Alignment]:
    """Every model's gauge and then its alignment; the anchor keeps the basis that its gauge gives it.

    Args:
        models: in the gauge.
        gauges: what brought each there.
        options: of a matcher.
    """
    options.select(models.blueprint)
    found = matcher_of(options).function(models, options)
    return [
        gauge if index == models.anchor else alignment.compose(gauge)
        for index, (alignment, gauge) in enumerate(zip(found, gauges, strict=True))
    ]


def gauged(
    states: Sequence[Mapping[str, Tensor]], blueprint: Blueprint, options: Selection, team: Team = ALONE
) -> tuple[Blueprint, list[Alignment]]:
    """The blueprint of models in the options' gauge, and the alignments that bring every model into it.

    Args:
        states: parameters by name, one mapping for each model; not modified.
        blueprint: of the models.
        options: of a matcher, which name the gauge.
        team: processes that all hold the models; each balances some of them.
    """
    blueprint = blueprint.in_gauge(options.gauge)
    gauges = [Alignment.identity(blueprint) for _ in states]
    if BALANCED in options.gauge:
        mine: dict[str, Tensor] = {}
        for index, (gauge, state) in enumerate(zip(gauges, states, strict=True)):
            if index % team.size == team.rank:
                balanced = balance(gauge.apply(state), blueprint).compose(gauge)
                mine |= {f"{index} {space}": element for space, element in balanced.elements.items()}
        told = team.joined(mine)
        starts = [f"{index} " for index in range(len(states))]
        gauges = [
            Alignment(blueprint, {name.removeprefix(start): x for name, x in told.items() if name.startswith(start)})
            for start in starts
        ]
    return blueprint, gauges


def _nearest_to_mean(states: Sequence[Mapping[str, Tensor]]) -> int:
    if len(states) <= 2:
        return 0
    names = [name for name in states[0] if states[0][name].is_floating_point()]
    mean = mean_state([{name: state[name] for name in names} for state in states])
    distances = [squared_distance(state, mean, names) for state in states]
    return distances.index(min(distances))
