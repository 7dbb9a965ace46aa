"""Signed permutations of streams and of planes are found by every way of matching that can."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fusionlab.matching.activations import match_activations
from fusionlab.matching.options import ALL, ANNEALED, KNOWN, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.matching.starts.activations import from_activations
from fusionlab.matching.twins import Twins
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Permutation, Signs
from tests.families.cases_llama import GQA2, SQUARE, model
from tests.families.harness import length_preserving
from tests.matching.sampling import sample
from tests.symmetry.models import generator, randomize

EVERYTHING = MatchOptions(spaces=(ALL,), rescale="off")
# A norm after each branch; norms of queries and keys, and a tied table.
BUILD = {
    "gemma2": model("Gemma2ForCausalLM", **SQUARE, head_dim=6, **GQA2),
    "qwen3": model("Qwen3ForCausalLM", head_dim=8, tie_word_embeddings=True, **GQA2),
}
each = pytest.mark.parametrize("name", BUILD)


def planted(name: str) -> tuple[nn.Module, nn.Module, Blueprint, Alignment]:
    """A model in a random basis, the model, its blueprint, and what moved it."""
    anchor = randomize(BUILD[name](), 0)
    description = blueprint(anchor)
    hidden = length_preserving(description)
    return hidden.apply(anchor), anchor, description, hidden


def left(found: Alignment, source: nn.Module, anchor: nn.Module) -> float:
    """The share of the distance that is left."""
    first, goal = source.state_dict(), anchor.state_dict()
    return squared_distance(found.apply(first), goal) / squared_distance(first, goal)


def inputs(description: Blueprint) -> dict[str, Tensor]:
    return {i.name: i.random(40, generator(9)) for i in description.inputs}


@each
@pytest.mark.parametrize("start", [KNOWN, ANNEALED])
def test_weights_find_signs(name: str, start: str) -> None:
    source, anchor, description, hidden = planted(name)
    signs = [space for space in description.spaces if space.endswith(".signs")]
    assert "residual.signs" in signs
    assert all(set(hidden.elements[space].unique().tolist()) == {-1, 1} for space in signs)
    options = replace(EVERYTHING, start=start)
    found = match_weights(source.state_dict(), anchor.state_dict(), description, options)
    assert left(found, source, anchor) < 1e-20


@each
def test_activations_find_signs(name: str) -> None:
    """Of streams, queries and keys; with weights after them everything, gains too, which no linear map reads."""
    source, anchor, description, hidden = planted(name)
    sides = sample(source, inputs(description)), sample(anchor, inputs(description))
    found = match_activations(*sides, description, EVERYTHING)
    for space, element in hidden.inverse().elements.items():
        if space.endswith(".signs"):
            assert torch.equal(found.elements[space], element)
    pair = Pair(source.state_dict(), anchor.state_dict(), description, sides)
    # Norms of the classes compute in float32.
    assert left(from_activations(pair, EVERYTHING), source, anchor) < 1e-10


@each
def test_permutations_alone_keep_signs(name: str) -> None:
    source, anchor, description, _ = planted(name)
    options = PermutationOptions(spaces=(ALL,))
    found = match_permutations(source.state_dict(), anchor.state_dict(), description, options)
    assert not any(space.endswith(".signs") for space in found.elements)


@each
def test_learning_turns_a_sign_back(name: str) -> None:
    """Between steps of gradient descent signs are solved for, as orders are."""
    anchor = randomize(BUILD[name](), 0)
    description = blueprint(anchor)
    signs = [space for space in description.spaces.values() if space.name.endswith(".signs")]
    turned = {space.name: space.group.identity(space.copies) for space in signs}
    for element in turned.values():
        element[(0,) * element.ndim] = -1
    source = Alignment(description, turned).apply(anchor)
    start = [Alignment.identity(description)] * 2
    twins = Twins([source, anchor], start, anchor=1)
    elements = twins.proposed(0)
    for space, element in turned.items():
        assert torch.equal(elements[space], element)


def test_units_whose_signs_differ_between_heads_are_compared_head_by_head() -> None:
    """Both heads have the same rows, one of them turned round: over both at once every product is zero."""
    b = BlueprintBuilder("two heads")
    heads = b.space("heads", Permutation(2), role="heads")
    units = b.space("units", Permutation(6), role="ffn")
    signs = b.space("units.signs", Signs(1), role="ffn", index=(heads.space, units.space))
    b.parameter("weight", b.per(heads, b.per(units, signs)), None)
    rows = torch.randn(6, 9, generator=generator(0), dtype=torch.float64)
    anchor = {"weight": torch.cat([rows, rows])}
    turned = torch.tensor([1.0, -1.0], dtype=torch.float64).reshape(2, 1, 1).expand(2, 6, 1)
    order = Permutation(6).random((), generator(1))
    hidden = Alignment(b.build(), {"units": order, "units.signs": turned})
    found = match_weights(hidden.apply(anchor), anchor, b.build(), MatchOptions(spaces=("ffn",), rescale="off"))
    torch.testing.assert_close(found.apply(hidden.apply(anchor))["weight"], anchor["weight"])
