"""Factors of a stream's gains are found by every way of matching that can, and bring models closer."""

import itertools

import pytest
from torch import Tensor, nn
from transformers import ConvNextConfig, ConvNextForImageClassification, GPT2Config, GPT2LMHeadModel

from fusionlab.matching.gauge import balance
from fusionlab.matching.options import ALL, ANNEALED, KNOWN, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.activations import from_activations
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.merging.units import find_sites
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.roles import Role
from tests.families.harness import length_preserving
from tests.matching.sampling import sample
from tests.parts import one_in
from tests.symmetry.models import generator, randomize


def gpt2() -> nn.Module:
    """With the table of tokens for a head."""
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 50, "n_positions": 16}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def convnext() -> nn.Module:
    """With a scale behind each branch."""
    sizes = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1], "image_size": 64}
    return ConvNextForImageClassification(ConvNextConfig(**sizes, num_labels=5, layer_scale_init_value=0.5))


BUILD = {"gpt2": gpt2, "convnext": convnext}
each = pytest.mark.parametrize("name", BUILD)
STARTS = [(name, start) for name in BUILD for start in (KNOWN, ANNEALED)]
each_start = pytest.mark.parametrize(("name", "start"), one_in(3, STARTS))


def made(name: str, seed: int) -> nn.Module:
    return randomize(BUILD[name](), seed)


def factors(description: Blueprint) -> list[str]:
    return [name for name, space in description.spaces.items() if space.role == Role.RESIDUAL_SCALE]


def left(found: Alignment, source: dict[str, Tensor], goal: dict[str, Tensor]) -> float:
    """The share of the distance that is left."""
    return squared_distance(found.apply(source), goal) / squared_distance(source, goal)


@each_start
def test_weights_find_the_signs_of_gains(name: str, start: str) -> None:
    goal = made(name, 0).state_dict()
    description = blueprint(made(name, 0))
    hidden = length_preserving(description)
    assert len(factors(description)) > 3
    assert all(hidden.elements[space].unique().tolist() == [-1, 1] for space in factors(description))
    source = hidden.apply(goal)
    options = MatchOptions(spaces=(ALL,), rescale="off", start=start)
    assert left(match_weights(source, goal, description, options), source, goal) < 1e-20


@each_start
def test_weights_find_stretched_gains(name: str, start: str) -> None:
    """Of two models in the balanced gauge, and where only a stream's elements were moved in none."""
    goal = made(name, 0).state_dict()
    description = blueprint(made(name, 0))
    every = Alignment.random(description, generator(5))
    streams = [n for n, space in description.spaces.items() if space.role in (Role.RESIDUAL, Role.RESIDUAL_SCALE)]
    for moved, in_gauge in ((every, True), (Alignment(description, {n: every.elements[n] for n in streams}), False)):
        sides = moved.apply(goal), goal
        if in_gauge:
            sides = tuple(balance(state, description).apply(state) for state in sides)
        options = MatchOptions(spaces=(ALL,), rescale="sequential", start=start)
        assert left(match_weights(*sides, description, options), *sides) < 1e-20


@pytest.mark.parametrize(("name", "rescale"), one_in(2, itertools.product(BUILD, ("off", "sequential", "joint"))))
def test_models_of_two_seeds_come_closer_by_them(name: str, rescale: str) -> None:
    """No step moves away, and with the factors models come closer than without where these may stretch."""
    source, goal = (made(name, seed).state_dict() for seed in (1, 0))
    description = blueprint(made(name, 0))
    closer = match_weights(source, goal, description, MatchOptions(spaces=(ALL,), rescale=rescale)).apply(source)
    assert squared_distance(closer, goal) < squared_distance(source, goal)
    own = MatchOptions(spaces=(Role.RESIDUAL_SCALE,), rescale=rescale)
    again = match_weights(closer, goal, description, own)
    assert squared_distance(again.apply(closer), goal) == pytest.approx(squared_distance(closer, goal), rel=1e-6)
    roles = tuple(role for role in description.roles() if not role.startswith("residual"))
    without = match_weights(source, goal, description, MatchOptions(spaces=roles, rescale=rescale)).apply(source)
    stretched = match_weights(without, goal, description, own).apply(without)
    before, after = (squared_distance(state, goal) for state in (without, stretched))
    assert after <= before if rescale == "off" else after < (1 - 1e-3) * before


def test_activations_find_them() -> None:
    """What reads a norm sees its factor; what is left is found by weights."""
    anchor = made("gpt2", 0)
    description = blueprint(anchor)
    source = length_preserving(description).apply(anchor)
    inputs = {i.name: i.random(40, generator(9)) for i in description.inputs}
    sides = sample(source, inputs), sample(anchor, inputs)
    states = source.state_dict(), anchor.state_dict()
    found = from_activations(Pair(*states, description, sides), MatchOptions(spaces=(ALL,), rescale="off"))
    assert left(found, *states) < 1e-10


def test_a_layer_scale_is_of_the_side_that_writes() -> None:
    """Its factor is dual, but a stream has one map for merges that know units, as without layer scales."""
    model = convnext()
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    sites = find_sites(blueprint(model), shapes, one_map=False)
    assert not any(site.units.endswith("*") for some in sites.values() for site in some)
    assert all(site.written for name, some in sites.items() for site in some if name.endswith("layer_scale_parameter"))
