"""Matching from activations: a hidden twin is found from what it computes, and nothing else is."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel

from fusionlab.errors import InputError
from fusionlab.matching.activations import activation_axes, match_activations
from fusionlab.matching.correlation import correlated
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.activations import from_activations
from fusionlab.matching.starts.gradients import from_gradients
from fusionlab.matching.weights import squared_distance
from fusionlab.statistics import Activations
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.axes import Fixed, spaces_of
from fusionlab.symmetry.folding import fold
from tests.families.cases_gpt import gpt2
from tests.families.harness import length_preserving
from tests.matching.sampling import sample
from tests.symmetry.models import generator, outputs, random_model, randomize, relative

ALL = MatchOptions(spaces=("all",), rescale="off")


def build(name: str, seed: int) -> nn.Module:
    if name == "gpt2":
        return randomize(GPT2LMHeadModel(gpt2(tie_word_embeddings=False)), seed)
    return random_model(name, seed)


def with_state(model: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    return twin


def inputs(description: Blueprint, batch: int = 40) -> dict[str, Tensor]:
    draw = generator(9)
    return {i.name: i.random(batch, draw) for i in description.inputs}


def pair(name: str, folded: bool) -> tuple[nn.Module, nn.Module, Blueprint]:
    """Two independent models, folded where that is asked for."""
    first, second = build(name, 0), build(name, 1)
    description = blueprint(second, folded=folded)
    if folded:
        first, second = (with_state(model, fold(model.state_dict(), description)) for model in (first, second))
    return first, second, description


def difference(first: nn.Module | dict, second: nn.Module) -> float:
    state = first.state_dict() if isinstance(first, nn.Module) else first
    goal = second.state_dict()
    empty = {name: torch.zeros_like(tensor) for name, tensor in goal.items()}
    return (squared_distance(state, goal) / squared_distance(empty, goal)) ** 0.5


CASES = [
    ("bert-sequence", False),
    ("bert-token", False),
    ("vit-classifier", True),
    ("timm-plain", True),
    ("gpt2", True),
    ("vit-model", False),
]


def both(source: nn.Module, anchor: nn.Module, description: Blueprint, batch: dict[str, Tensor]) -> Pair:
    """Two models with their activations on a batch."""
    activations = (sample(source, batch), sample(anchor, batch))
    return Pair(source.state_dict(), anchor.state_dict(), description, activations)


@pytest.mark.parametrize(("name", "folded"), CASES)
def test_planted_alignment_is_recovered(name, folded):
    """Permutations, rotations in heads, and of a folded model's stream: the twin comes back to distance zero."""
    _, anchor, description = pair(name, folded)
    planted = length_preserving(description)
    source = planted.apply(anchor)
    assert difference(source, anchor) > 0.1
    batch = inputs(description)
    found = match_activations(sample(source, batch), sample(anchor, batch), description, ALL)
    assert set(found.elements) == set(planted.elements)
    assert difference(found.apply(source), anchor) < 1e-9


@pytest.mark.parametrize(("name", "folded"), CASES)
def test_planted_alignment_is_recovered_with_weights_after(name, folded):
    """The same with coordinate ascent on weights from there."""
    _, anchor, description = pair(name, folded)
    source = length_preserving(description).apply(anchor)
    batch = inputs(description)
    found = from_activations(both(source, anchor, description, batch), ALL)
    assert difference(found.apply(source), anchor) < 1e-9


@pytest.mark.parametrize("name", ["bert-sequence", "bert-token"])
def test_planted_permutation_is_told_by_gradients(name):
    """Where activations tell nothing of the stream; it keeps its order, and all else comes back by weights."""
    _, anchor, description = pair(name, False)
    planted = length_preserving(description)
    source, batch = planted.apply(anchor), inputs(description)
    samples = []
    for model in (source, anchor):
        found = sample(model, batch, gradients=True)
        silent = {weight: torch.ones_like(read) for weight, read in found.inputs.items()}
        samples.append(replace(found, inputs=silent))
    one = Pair(source.state_dict(), anchor.state_dict(), description, tuple(samples))
    found = from_gradients(one, ALL)
    assert torch.equal(found.element("residual"), planted.inverse().element("residual"))
    assert difference(found.apply(source), anchor) < 1e-9
    without = replace(one, activations=tuple(replace(one, gradients={}) for one in samples))
    with pytest.raises(InputError, match="start 'gradients' compares gradients, and there are none"):
        from_gradients(without, ALL)


@pytest.mark.parametrize("name", ["bert-sequence", "bert-token"])
def test_weights_leave_what_correlations_tell(name):
    """Of independent models: streams and units, not signed ones, keep that order; weights bring the rest closer."""
    source, anchor, description = pair(name, False)
    first, second = (sample(model, inputs(description), gradients=True) for model in (source, anchor))
    one = Pair(source.state_dict(), anchor.state_dict(), description, (first, second))
    found = from_gradients(one, ALL)
    told = [description.spaces[name] for name in ("residual", "layers.0.ffn", "layers.1.ffn")]
    expected = Alignment(description, correlated(first, second, description, told))
    for space in told:
        assert torch.equal(found.element(space.name), expected.element(space.name))
        assert not torch.equal(found.element(space.name), torch.arange(space.group.size))
    goal = anchor.state_dict()
    before, after = (squared_distance(one.apply(source.state_dict()), goal) for one in (expected, found))
    assert after < before
    streams = from_gradients(one, replace(ALL, spaces=("residual",)))
    assert streams.elements.keys() == {"residual"}


@pytest.mark.parametrize("name", ["vit-classifier", "timm-plain", "gpt2"])
def test_more_sweeps_bring_weights_closer(name):
    """Independent folded models: streams and the rest are solved in turn, and one pass is not the last that helps."""
    source, anchor, description = pair(name, True)
    batch = inputs(description)
    sides = both(source, anchor, description, batch)
    left = []
    for sweeps in (1, 2, 50):
        found = from_activations(sides, replace(ALL, sweeps=sweeps))
        left.append(squared_distance(found.apply(sides.source), sides.anchor))
    assert left[2] <= left[1] < left[0]


@pytest.mark.parametrize(("name", "folded"), CASES)
def test_function_is_kept_and_activations_come_closer(name, folded):
    """Independent models: outputs stay to 1e-9, every element is one of its group, and the twin computes more alike."""
    source, anchor, description = pair(name, folded)
    batch = inputs(description)
    first, second = sample(source, batch), sample(anchor, batch)
    found = match_activations(first, second, description, ALL)
    twin = found.apply(source)
    assert relative(outputs(twin), outputs(source)) < 1e-9
    for name_, element in found.elements.items():
        space = description.spaces[name_]
        assert space.group.check(element, space.copies) is None
    assert distance(sample(twin, batch), second, description) < distance(first, second, description)


def distance(first: Activations, second: Activations, description: Blueprint) -> float:
    """What matching minimises: squared distances, each tensor in units of its two norms."""
    total = 0.0
    for name in activation_axes(second, description):
        kind, _, weight = name.partition(":")
        a, b = ((x.inputs if kind == "in" else x.outputs)[weight] for x in (first, second))
        total += float((a - b).square().sum() / (a.norm() * b.norm()))
    return total


@pytest.mark.parametrize(("name", "folded"), CASES)
def test_activations_after_matching_are_those_that_were_moved(name, folded):
    """The axes tell the truth: moving a sampled activation is sampling the moved model."""
    source, _, description = pair(name, folded)
    alignment = Alignment.random(description, generator(3))
    batch = inputs(description, 4)
    before, after = sample(source, batch), sample(alignment.apply(source), batch)
    axes = activation_axes(before, description)
    assert {space for axis in axes.values() for space in spaces_of(axis)} == set(description.spaces)
    for tensor_name, axis in axes.items():
        kind, _, weight = tensor_name.partition(":")
        a, b = ((x.inputs if kind == "in" else x.outputs)[weight] for x in (before, after))
        assert relative(b, alignment.transform(a, (axis, Fixed()))) < 1e-9, tensor_name


def test_every_tensor_counts_alike():
    """A linear map with enormous activations does not decide the others' spaces: scaling one tensor changes nothing."""
    source, anchor, description = pair("bert-sequence", False)
    batch = inputs(description)
    first, second = sample(source, batch), sample(anchor, batch)
    plain = match_activations(first, second, description, ALL)
    loud = "bert.encoder.layer.0.intermediate.dense.weight"
    louder = [
        replace(x, inputs={**x.inputs, loud: 1e6 * x.inputs[loud]}, outputs={**x.outputs, loud: 1e6 * x.outputs[loud]})
        for x in (first, second)
    ]
    scaled = match_activations(*louder, description, ALL)
    for name in plain.elements:
        torch.testing.assert_close(scaled.elements[name], plain.elements[name], rtol=0, atol=1e-9)


def test_a_tensor_that_is_loud_in_one_model_counts_no_more():
    """What a tensor is divided by holds the norms of both: one model's alone scaled changes nothing either."""
    source, anchor, description = pair("bert-sequence", False)
    batch = inputs(description)
    first, second = sample(source, batch), sample(anchor, batch)
    plain = match_activations(first, second, description, ALL)
    loud = "bert.encoder.layer.0.intermediate.dense.weight"
    for factor in (1e-6, 1e6):
        louder = replace(first, inputs={**first.inputs, loud: factor * first.inputs[loud]})
        scaled = match_activations(louder, second, description, ALL)
        for name in plain.elements:
            torch.testing.assert_close(scaled.elements[name], plain.elements[name], rtol=0, atol=1e-9)


def test_only_chosen_spaces_are_matched():
    """Roles and layers are those of the options; the rest keeps its basis."""
    source, anchor, description = pair("vit-classifier", True)
    batch = inputs(description)
    options = MatchOptions(spaces=("attention.qk", "ffn"), layers="1", rescale="off")
    found = match_activations(sample(source, batch), sample(anchor, batch), description, options)
    assert set(found.elements) == {"layers.1.qk", "layers.1.ffn"}


def test_other_inputs_are_refused():
    """Activations of other rows, or of other linear maps, cannot be compared."""
    source, anchor, description = pair("bert-sequence", False)
    batch = inputs(description, 4)
    first, second = sample(source, batch), sample(anchor, batch, drawn="other rows")
    with pytest.raises(InputError, match="different inputs"):
        match_activations(first, second, description, ALL)
    fewer = dict(list(first.maps.items())[1:])
    with pytest.raises(InputError, match="one model only"):
        match_activations(replace(first, maps=fewer), first, description, ALL)


def test_dead_activations_are_left_out():
    """A tensor of zeros in one model says nothing; no element becomes undefined."""
    source, anchor, description = pair("bert-sequence", False)
    batch = inputs(description)
    first, second = sample(source, batch), sample(anchor, batch)
    dead = "bert.encoder.layer.0.attention.self.query.weight"
    silent = replace(first, outputs={**first.outputs, dead: torch.zeros_like(first.outputs[dead])})
    found = match_activations(silent, second, description, ALL)
    assert all(bool(torch.isfinite(element.double()).all()) for element in found.elements.values())
