"""Bring several models into one common basis."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.matching.gauge import balance
from fusionlab.matching.options import BALANCED, MEAN, MatchOptions
from fusionlab.matching.universe import match_universe, mean_state
from fusionlab.matching.weights import match_weights, squared_distance
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
    if anchor == NEAREST:
        return _nearest_to_mean(states)
    text = str(anchor)
    if not text.isdigit() or int(text) >= len(states):
        raise InputError(f"anchor is {anchor!r}; expected {NEAREST!r} or an index from 0 to {len(states) - 1}")
    return int(text)


def align_states(
    states: Sequence[Mapping[str, Tensor]], blueprint: Blueprint, options: MatchOptions, anchor: int = 0
) -> list[Alignment]:
    """An alignment for each model, in order, such that all matched twins share one basis.

    The anchor keeps its basis, unless the options bring every model into a gauge first; also where all are matched to
    their mean. Two models are matched as a pair in any case.

    Args:
        states: parameters by name, one mapping for each model, all of `blueprint`; not modified.
        blueprint: of the models.
        options: what to match and how.
        anchor: index of the anchor.
    """
    if not options.spaces:
        return [Alignment.identity(blueprint) for _ in states]
    described, gauges = gauged(states, blueprint, options)
    options.select(described)
    twins = [gauge.apply(state) for gauge, state in zip(gauges, states, strict=True)]
    if options.towards == MEAN and len(states) > 2:
        found = match_universe(twins, described, options)
        back = found[anchor].inverse()
        return beside_anchor(gauges, anchor, lambda index: back.compose(found[index]))
    return beside_anchor(gauges, anchor, lambda index: match_weights(twins[index], twins[anchor], described, options))


def beside_anchor(gauges: Sequence[Alignment], anchor: int, match: Callable[[int], Alignment]) -> list[Alignment]:
    """Every model's gauge and then its alignment; the anchor keeps the basis that its gauge gives it.

    Args:
        gauges: one for each model, see `gauged`.
        anchor: index of the anchor.
        match: from a model's index, the alignment of the model in its gauge.
    """
    return [gauge if index == anchor else match(index).compose(gauge) for index, gauge in enumerate(gauges)]


def gauged(
    states: Sequence[Mapping[str, Tensor]], blueprint: Blueprint, options: MatchOptions
) -> tuple[Blueprint, list[Alignment]]:
    """What brings every model into the options' gauge, and the blueprint of the models that are in it."""
    blueprint = blueprint.in_gauge(options.gauge)
    gauges = [Alignment.identity(blueprint) for _ in states]
    if BALANCED in options.gauge:
        gauges = [
            balance(gauge.apply(state), blueprint).compose(gauge) for gauge, state in zip(gauges, states, strict=True)
        ]
    return blueprint, gauges


def _nearest_to_mean(states: Sequence[Mapping[str, Tensor]]) -> int:
    if len(states) <= 2:
        return 0
    names = [name for name in states[0] if states[0][name].is_floating_point()]
    mean = mean_state([{name: state[name] for name in names} for state in states])
    distances = [squared_distance(state, mean, names) for state in states]
    return distances.index(min(distances))
