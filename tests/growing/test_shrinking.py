"""Shrinking: what was grown comes back, on real classes and in float64; what cannot be cut is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fusionlab.errors import InputError
from fusionlab.growing import grown, shrunk
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.roles import Role
from tests.growing.test_growth import apart
from tests.parts import one_in
from tests.symmetry.models import generator, laws, randomize

from .families import CASES, among_silent_layers, bert, gpt2, gpt_oss, llama, mixtral, vit

# Whose streams are rotated, and whose heads are divided alike in both sizes.
COME_BACK = (
    "vit-everything", "vit-heads", "vit-depth", "timm", "gpt2-untied", "llama", "llama-queries", "gpt-oss-experts",
    "mixtral",
)  # fmt: skip

# Large models, smaller ones, and words of why the first do not become the second.
REFUSED = {
    "larger": (vit(hidden_size=20), vit(hidden_size=24), "has a dimension of 24 that would be 20"),
    "classes": (vit(), bert(), "the model to shrink is a ViTForImageClassification and the smaller one a BertFor"),
    "mean": (bert(hidden_size=24), bert(), "cannot be mixed"),
    "tied": (gpt2(n_embd=24), gpt2(), "untied (--untie)"),
    "one-head": (vit(num_attention_heads=4), vit(num_attention_heads=1), "has a dimension of 12 that would be 3"),
    "tokens": (bert(vocab_size=23), bert(), "is no hidden one"),
    "layers": (bert(num_hidden_layers=1), bert(num_hidden_layers=2), "has 2 layers and would have 1"),
    "window": (
        mixtral(intermediate_size=24, sliding_window=None),
        mixtral(sliding_window=16),
        "attention reaches",
    ),
}


@pytest.mark.parametrize(("name", "fill"), one_in(3, zip(COME_BACK, cycle((True, True, False, False)), strict=False)))
def test_what_was_grown_comes_back(name: str, fill: bool) -> None:
    """What is new is cut off again, whether it is the larger model's or zero, by turns."""
    case = CASES[name]
    small, large = randomize(case.build(**case.smaller), 0), case.build(**case.larger)
    twin = grown(small, randomize(large, 1) if fill else large, fill=fill).model
    found = shrunk(twin, case.build(**case.smaller))
    assert type(found.model) is type(small)
    assert apart(found.model, small) < 1e-9
    assert found.differs < 1e-9
    assert found.parameters[0] > found.parameters[1] == sum(parameter.numel() for parameter in small.parameters())


@settings(laws, max_examples=3)
@given(st.integers(0, 100))
def test_growing_and_shrinking_is_the_identity(seed: int) -> None:
    """Whatever basis the grown model is brought into between."""
    small = randomize(vit(num_hidden_layers=1), seed)
    large = vit(hidden_size=16, intermediate_size=23, num_hidden_layers=2)
    twin = grown(small, randomize(large, seed + 1)).model
    folded = blueprint(twin).after_folding
    assert folded is not None
    moved = Alignment.random(folded, generator(seed)).apply(twin)
    assert apart(shrunk(moved, small).model, small) < 1e-9


@pytest.mark.parametrize(
    ("build", "same", "larger"),
    [
        (gpt_oss, {}, {"num_local_experts": 5, "intermediate_size": 26}),
        (llama, {"head_dim": 4}, {"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 24}),
    ],
    ids=["experts and their units", "heads and their queries"],
)
def test_what_lies_in_what_is_cut_comes_back(
    build: Callable[..., nn.Module], same: dict[str, Any], larger: dict[str, Any]
) -> None:
    """In any order of experts and of the units of each, of heads and of the queries of each."""
    small = randomize(build(**same), 0)
    twin = grown(small, build(**same, **larger)).model
    described = blueprint(twin)
    moved = Alignment.random(described.after_folding or described, generator(0)).apply(twin)
    assert apart(shrunk(moved, small).model, small) < 1e-9


def test_which_heads_stay_does_not_depend_on_the_basis_inside() -> None:
    large = randomize(llama(num_attention_heads=12, num_key_value_heads=6, head_dim=4, hidden_size=24), 0)
    described = blueprint(large)
    moved = {name: space.group.random(space.copies, generator(1)) for name, space in described.spaces.items()
             if space.role == Role.VALUE_OUTPUT}  # fmt: skip
    small = llama(num_attention_heads=4, num_key_value_heads=2, head_dim=4, hidden_size=24)
    first, second = (shrunk(model, small).model for model in (large, Alignment(described, moved).apply(large)))
    assert apart(first, second) < 1e-9


def test_what_was_left_in_place_is_the_small_model_itself() -> None:
    """In its folded form, number by number."""
    small = randomize(llama(head_dim=4), 0)
    twin = grown(small, llama(head_dim=4, hidden_size=24, intermediate_size=31)).model
    folded = blueprint(small).after_folding
    assert folded is not None
    expected, found = Alignment.identity(folded).apply(small).state_dict(), shrunk(twin, small).model.state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9)


def test_labels_types_and_the_layers_that_write_stay() -> None:
    small = vit(num_hidden_layers=1, num_labels=5)
    large = randomize(vit(num_hidden_layers=3, num_labels=2, id2label={0: "cat", 1: "dog"}), 0)
    silent = among_silent_layers(
        small=randomize(vit(num_hidden_layers=0, num_labels=2), 0), large=large, places=(), silent=(0, 2)
    )
    found = shrunk(silent.to(torch.bfloat16), small)
    model: Any = found.model
    assert [(stack.positions, stack.length) for stack in found.placements] == [((1,), 3)]
    assert model.config.id2label == {0: "cat", 1: "dog"}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_the_more_is_left_the_nearer_the_function() -> None:
    """Units, by what they write and read."""
    large = randomize(vit(intermediate_size=40), 1)
    errors = [shrunk(large, vit(intermediate_size=size)).differs for size in (40, 30, 10)]
    assert errors[0] < 1e-9 < errors[1] < errors[2]


def test_key_biases_do_not_weigh() -> None:
    """Softmax ignores them, so that what is kept does not depend on how long they are."""
    large = randomize(vit(num_attention_heads=4, hidden_size=16), 0)
    longer = copy.deepcopy(large)
    for name, parameter in longer.named_parameters():
        if name.endswith("k_proj.bias"):
            parameter.data[:4] += 50.0
    assert apart(large, longer) < 1e-9
    small = vit(num_attention_heads=2, hidden_size=8)
    assert apart(shrunk(large, small).model, shrunk(longer, small).model) < 1e-9


@pytest.mark.parametrize(("large", "small", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_shrunk_is_refused(large: torch.nn.Module, small: torch.nn.Module, words: str) -> None:
    with pytest.raises(InputError) as refusal:
        shrunk(randomize(large, 0), small)
    assert words in str(refusal.value)
