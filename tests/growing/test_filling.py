"""Filling: what is new in a grown model is as in the model it is matched to, and its function is what it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fusionlab
from fusionlab.growing import grown, grown_to_one_size
from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.unseen import masked, unseen_entries
from tests.parts import one_in
from tests.symmetry.models import generator, randomize

from .families import CASES, gpt2, gpt_oss, llama, vit
from .test_growth import apart, function


def distance(models: list[nn.Module]) -> float:
    """The squared distance of two models once they are matched by weights."""
    one, other = (twin.state_dict() for twin in fusionlab.align(models, anchor=1, preset="weights"))
    return squared_distance(one, other, [name for name in one if one[name].is_floating_point()])


FILLED = ("vit-everything", "deberta", "gpt2-untied", "llama-queries", "gpt-oss-experts", "bart")


@pytest.mark.parametrize("name", one_in(3, FILLED))
def test_the_function_stays(name: str) -> None:
    case = CASES[name]
    small, large = randomize(case.build(**case.smaller), 0), randomize(case.build(**case.larger), 1)
    plain, growth = grown(small, large), grown(small, large, fill=True)
    assert growth.exact < 1e-9
    assert apart(growth.model, small) < 1e-9
    state = plain.model.state_dict()
    zeros = {n: t for n, t in growth.model.state_dict().items() if t.is_floating_point() and (state[n] == 0).any()}
    # Somewhere zeros were put, and are no more.
    assert any((tensor[state[n] == 0] != 0).any() for n, tensor in zeros.items())


def test_what_is_read_of_nothing_and_written_to_nothing_is_the_other_models() -> None:
    """A ViT with more units: their inputs are those of other units there, turned alone; their outputs stay zero."""
    small, large = randomize(vit(), 0), randomize(vit(intermediate_size=31), 1)
    state, theirs = (
        grown(small, large, fill=True).model.state_dict(),
        fusionlab.canonical(large, ("folded",)).state_dict(),
    )
    new = slice(20, None)
    for layer in range(2):
        rows, columns = f"vit.layers.{layer}.mlp.fc1.weight", f"vit.layers.{layer}.mlp.fc2.weight"
        assert (state[columns][:, new] == 0).all()
        # Rotations of the stream, which are all that is free here beside the order, keep lengths and angles.
        angles, known = (table @ table.T for table in (state[rows][new].double(), theirs[rows].double()))
        for index in range(11):
            assert (known.diagonal() - angles[index, index]).abs().min() < 1e-4
        assert angles.fill_diagonal_(0).abs().max() > 0


def test_maps_that_numbers_tell_apart_are_filled_apart() -> None:
    """More width, units and layers: what new units write stays zero, what they read is the other model's."""
    small = randomize(vit(num_hidden_layers=1), 0)
    large = randomize(vit(hidden_size=16, intermediate_size=31, num_hidden_layers=2), 1)
    state = grown(small, large, fill=True).model.state_dict()
    for layer in range(2):
        assert (state[f"vit.layers.{layer}.mlp.fc2.weight"][:, 20:] == 0).all()
        assert (state[f"vit.layers.{layer}.mlp.fc1.weight"][20:].norm(dim=1) > 0).all()


def test_experts_that_are_seldom_picked_stay_held_down() -> None:
    """No bias of a router is filled, though two inputs may pick none of the new experts."""
    small = randomize(gpt_oss(), 0)
    large = randomize(gpt_oss(num_local_experts=5), 1)
    with torch.no_grad():
        for name, parameter in large.named_parameters():
            if name.endswith("router.bias"):
                parameter[3:] -= 6
    growth = grown(small, large, fill=True)
    for name, parameter in growth.model.named_parameters():
        if name.endswith("router.bias"):
            assert (parameter[3:] <= -1e4).all()
    for seed in range(8):
        found, expected = function(growth.model, seed), function(small, seed)
        assert float((found - expected).abs().max() / expected.abs().max()) < 1e-9


def test_new_heads_are_filled_but_for_what_they_write() -> None:
    """Nothing reads them, so queries, keys and values are the other model's."""
    small = randomize(llama(head_dim=4, num_attention_heads=2, num_key_value_heads=2), 0)
    large = randomize(llama(head_dim=4, num_attention_heads=4, num_key_value_heads=4), 1)
    state = grown(small, large, fill=True).model.state_dict()
    for name in ("q_proj", "k_proj", "v_proj"):
        assert (state[f"model.layers.0.self_attn.{name}.weight"][8:].norm(dim=1) > 0).all()
    assert (state["model.layers.0.self_attn.o_proj.weight"][:, 8:] == 0).all()


def test_most_of_a_larger_model_that_holds_the_small_one_is_found_again() -> None:
    """The small model, its freedom filled with anything, in an unknown basis."""
    small = randomize(llama(head_dim=4), 0)
    holding = grown(small, randomize(llama(head_dim=4, hidden_size=24, intermediate_size=31), 1), fill=True).model
    folded = blueprint(holding).after_folding
    assert folded is not None
    hidden = Alignment.random(folded, generator(2)).apply(holding)
    filled, plain = (distance([grown(small, hidden, fill=fill).model, hidden]) for fill in (True, False))
    assert filled < 0.1 * plain


def test_what_is_tied_and_heads_of_other_labels_stay() -> None:
    small, large = randomize(gpt2(), 0), randomize(gpt2(n_embd=24, n_inner=60), 1)
    growth = grown(small, large, fill=True)
    assert growth.model.lm_head.weight is growth.model.transformer.wte.weight  # type: ignore[union-attr]
    assert apart(growth.model, small) < 1e-9
    other = grown(randomize(vit(num_labels=2), 0), randomize(vit(num_labels=7, hidden_size=20), 1), fill=True)
    assert other.model.classifier.weight.shape == (2, 20)  # type: ignore[union-attr]
    assert other.exact < 1e-9


def test_several_are_filled_from_the_largest_or_from_each_other() -> None:
    models = {"small": randomize(vit(), 0), "large": randomize(vit(hidden_size=20), 1)}
    (growth,) = grown_to_one_size(models, fill=True).values()
    expected = grown(*models.values(), fill=True).model.state_dict()
    torch.testing.assert_close(growth.model.state_dict(), expected)
    crossed = {"wide": randomize(vit(hidden_size=20), 0), "many": randomize(vit(intermediate_size=31), 1)}
    one, other = (growth.model for growth in grown_to_one_size(crossed, fill=True).values())
    plain = grown_to_one_size(crossed)["many"].model.state_dict()["vit.layers.0.mlp.fc1.weight"]
    assert apart(one, crossed["wide"]) < 1e-9
    assert apart(other, crossed["many"]) < 1e-9
    # Columns of the stream that only the other one writes to.
    assert (other.state_dict()["vit.layers.0.mlp.fc1.weight"][:, 12:] - plain[:, 12:]).abs().min() > 0


def test_functions_of_python_fill_where_they_match() -> None:
    small, large = randomize(vit(), 0), randomize(vit(hidden_size=20), 1)
    with pytest.warns(UserWarning, match="was grown"):
        filled, _ = fusionlab.align([small, large], anchor=1, preset="weights")
    with pytest.warns(UserWarning, match="was grown"):
        plain, _ = fusionlab.align([small, large], anchor=1, preset="none")
    torch.testing.assert_close(plain.state_dict(), fusionlab.grow(small, large).state_dict())
    assert apart(filled, small) < 1e-9
    again = fusionlab.align([fusionlab.grow(small, large, fill=True), large], anchor=1, preset="weights")[0]
    torch.testing.assert_close(filled.state_dict(), again.state_dict())


def test_twins_of_grown_models_are_matched_again() -> None:
    """They have no entries that are known to change nothing, so that learning does not look for any."""
    small, large = randomize(vit(), 0), randomize(vit(hidden_size=20), 1)
    with pytest.warns(UserWarning, match="was grown"):
        twins = fusionlab.align([small, large], anchor=1, preset="weights")
    config = small.config
    shape = (4, config.num_channels, config.image_size, config.image_size)
    data = [{"pixel_values": torch.randn(shape, generator=generator(0)).double()}]
    again = fusionlab.align(twins, anchor=1, preset="learned", data=data, steps=2, mixtures=0, start="known")
    assert apart(again[0].double(), small.double()) < 1e-5


@pytest.mark.parametrize("name", one_in(2, FILLED[::-1]))
def test_anything_may_stand_in_entries_that_change_nothing(name: str) -> None:
    """Those that are noted hold random numbers, as large as the parameter's own, and the function stays."""
    case = CASES[name]
    small, large = randomize(case.build(**case.smaller), 0).double(), randomize(case.build(**case.larger), 1).double()
    model = grown(small, large, fill=True).model
    entries, state = unseen_entries(model), dict(model.state_dict())
    described, draw = blueprint(model), generator(5)
    folded = described if described.after_folding is None else described.after_folding
    assert sum(int(where.sum()) for where in entries.values()) > 0
    state = dict(folded.stacked(Alignment.identity(folded).apply(state)))
    filling = {n: masked(torch.randn(state[n].shape, generator=draw).double(), where) for n, where in entries.items()}
    other = Alignment(folded, Alignment.random(folded, generator(6)).elements, filling).apply(model)
    assert apart(other, small) < 1e-9


def test_a_model_that_is_not_filled_has_no_such_entries() -> None:
    assert unseen_entries(grown(randomize(vit(), 0), vit(hidden_size=20)).model) == {}
