"""Pairs of units by the better signs of all factors inside of them, against every choice of signs there is."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.matching.blocks import blocks
from fusionlab.matching.options import ALL, MatchOptions
from fusionlab.matching.problems import Problem, correlate_permutation
from fusionlab.matching.signed_units import SignedUnits, best_gain, hubs, mean_signs
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.axes import Along, Axis, Fixed, scaled
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Permutation, Scale, Signs
from tests.matching.problems_at_random import normal, seeds
from tests.symmetry.models import generator, laws

NAMES = "stream", "first", "second", "third"
keys = st.lists(st.sets(st.sampled_from(NAMES)).map(frozenset), min_size=1, max_size=7, unique=True)


def every_sum(found: dict[frozenset[str], Tensor]) -> Tensor:
    """The sum of correlations for each choice of signs, a dimension of choices first; and the choices."""
    sums = []
    for choice in itertools.product((1, -1), repeat=len(NAMES)):
        signs = dict(zip(NAMES, choice, strict=True))
        sums.append(sum(c * math.prod(signs[name] for name in key) for key, c in found.items()))
    return torch.stack(sums)


@laws
@given(keys, seeds)
def test_the_best_signs_are_the_best_of_all(drawn: list[frozenset[str]], seed: int) -> None:
    """Of any sets of factors, whichever meet in which."""
    found = {key: normal(3, 3, seed=seed + number) for number, key in enumerate(drawn)}
    torch.testing.assert_close(best_gain(drawn, lambda key: found[key].clone()), every_sum(found).amax(0))


@laws
@given(keys, seeds)
def test_means_of_signs_are_those_over_all_choices(drawn: list[frozenset[str]], seed: int) -> None:
    found = {key: normal(3, 3, seed=seed + number) for number, key in enumerate(drawn)}
    sums = every_sum(found)
    means, gain = mean_signs(found)
    torch.testing.assert_close(gain, sums.logsumexp(0) - math.log(len(sums)))
    shares = sums.softmax(0)
    choices = torch.tensor(list(itertools.product((1.0, -1.0), repeat=len(NAMES))), dtype=torch.float64)
    for position, name in enumerate(NAMES):
        if any(name in key for key in drawn):
            torch.testing.assert_close(means[name], torch.einsum("sij,s->ij", shares, choices[:, position]))


def test_the_sign_of_a_stream_is_all_that_is_chosen() -> None:
    """Beside it, factors of any number of gains follow by themselves."""
    gains = [frozenset({f"gain{i}"}) for i in range(9)]
    assert hubs([*gains, frozenset({"stream"}), *(gain | {"stream"} for gain in gains)]) == ("stream",)
    assert hubs(gains) == ()


def shared(**spaces: Scale | Signs) -> tuple[BlueprintBuilder, Along, dict[str, Axis]]:
    b = BlueprintBuilder("shared")
    units = b.space("units", Permutation(4), role="ffn")
    return b, units, {n: b.space(n, g, role="ffn.scale", index=("units",)) for n, g in spaces.items()}


def stream() -> Blueprint:
    """Units with signs, written once, and two gains with factors, each read once."""
    one = Scale(1, signed=True)
    b, units, _ = shared(signs=Signs(1), first=one, second=one)
    b.parameter("writer", b.per(units, Along("signs", 1)), None)
    for name in ("first", "second"):
        b.parameter(f"{name}.gain", b.per(units, Along(name, 1)))
        b.parameter(f"{name}.reader", None, b.per(units, scaled(name, -1, Along("signs", 1, is_dual=True))))
    return b.build()


def gated() -> Blueprint:
    """A ReLU's gate, values, and what reads both."""
    b, units, _ = shared(gate=Scale(1), values=Scale(1, signed=True))
    b.parameter("gate.weight", b.per(units, Along("gate", 1)), None)
    b.parameter("values.weight", b.per(units, Along("values", 1)), None)
    b.parameter("down.weight", None, b.per(units, scaled("gate", -1, Along("values", 1, is_dual=True))))
    return b.build()


def squared() -> Blueprint:
    """Units that are squared, whose sign nothing that reads them sees."""
    b, units, _ = shared(factor=Scale(1, signed=True))
    b.parameter("up", b.per(units, Along("factor", 1)), None)
    b.parameter("down", None, b.per(units, scaled("factor", -2, Fixed(1))))
    return b.build()


BUILD = {"stream": stream, "gated": gated, "squared": squared}


def states(description: Blueprint, seed: int) -> list[dict[str, Tensor]]:
    shapes = {n: tuple(3 if a.size is None else a.size for a in axes) for n, axes in description.parameters.items()}
    return [{n: normal(*shape, seed=seed + 100 * k + i) for i, (n, shape) in enumerate(shapes.items())} for k in (0, 1)]


@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize("seed", range(3))
def test_order_and_signs_are_the_joint_optimum(name: str, seed: int) -> None:
    """Against every permutation of four units, and within each every choice of each unit's signs."""
    description = BUILD[name]()
    source, anchor = states(description, seed)
    options = MatchOptions(spaces=(ALL,), rescale="off")
    found = match_weights(source, anchor, description, options).apply(source)
    signed = [s.name for s in description.spaces.values() if s.group in (Signs(1), Scale(1, signed=True))]
    choices = []
    for choice in itertools.product((1.0, -1.0), repeat=len(signed)):
        elements = {n: torch.full((4, 1), sign, dtype=torch.float64) for n, sign in zip(signed, choice, strict=True)}
        choices.append(Alignment(description, elements))
    rivals = []
    for order in itertools.permutations(range(4)):
        moved = Alignment(description, {"units": torch.tensor(order)}).apply(source)
        by_unit = [unit_distances(choice.apply(moved), anchor, description) for choice in choices]
        rivals.append(float(torch.stack(by_unit).amin(0).sum()))
    assert squared_distance(found, anchor) == pytest.approx(min(rivals), rel=1e-9)


def unit_distances(first: dict[str, Tensor], second: dict[str, Tensor], description: Blueprint) -> Tensor:
    """The squared distance of each unit's numbers, shape ``(4)``."""
    total = torch.zeros(4, dtype=torch.float64)
    for name, axes in description.parameters.items():
        total += (first[name] - second[name]).square().movedim(place_of(axes), 0).reshape(4, -1).sum(1)
    return total


def place_of(axes: tuple[Axis, ...]) -> int:
    """The dimension that units lie along."""
    return next(dim for dim, axis in enumerate(axes) if axis.size == 4)


def test_what_factors_act_on_is_cut_once() -> None:
    """Plain rows, and those of all sets of factors, are the whole of the parameters."""
    for build in BUILD.values():
        description = build()
        source, anchor = states(description, 0)
        (block,) = blocks(list(description.spaces.values()), description)
        problem = Problem(description, source, anchor)
        signed = SignedUnits(problem, block, block.names)
        total = correlate_permutation(problem, block)[0] + sum(signed.correlation(key) for key in signed.places)
        rows = [
            torch.cat(
                [state[n].movedim(place_of(axes), 0).reshape(4, -1) for n, axes in description.parameters.items()], 1
            )
            for state in (anchor, source)
        ]
        torch.testing.assert_close(total, rows[0] @ rows[1].mT)


def test_copies_that_are_counted_in_two_ways_are_refused() -> None:
    b = BlueprintBuilder("two ways")
    heads = b.space("heads", Permutation(2), role="heads")
    units = b.space("units", Permutation(4), role="ffn")
    b.space("signs", Signs(1), role="ffn", index=(heads.space, units.space))
    b.space("factor", Scale(1, signed=True), role="ffn.scale", index=(units.space,))
    b.parameter("weight", b.per(heads, b.per(units, scaled("factor", 1, Along("signs", 1)))), None)
    description = b.build()
    source = Alignment.random(description, generator(0)).apply({"weight": normal(8, 3, seed=1)})
    with pytest.raises(TypeError, match="share a stretch"):
        match_weights(source, source, description, MatchOptions(spaces=("ffn",), rescale="off"))
