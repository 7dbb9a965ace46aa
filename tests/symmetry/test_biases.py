"""Biases that nothing needs can be cleared: shown on every family's real model class, in float64."""

import copy

import pytest
import torch

from fusionlab import checkpoints
from fusionlab.statistics.linear_maps import linear_maps
from fusionlab.symmetry import Alignment, Blueprint, SymmetryError, blueprint
from fusionlab.symmetry.axes import Concat, spaces_of
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Permutation
from fusionlab.symmetry.roles import Role
from tests.families.harness import EXACT, FLOAT32, Case, assert_same_outputs, outputs, random_model, with_state
from tests.families.test_families import CASES, FEW, MOST
from tests.symmetry.models import random_model as model_of_table

BY_NAME = {case.name: case for case in CASES}


def cleared_names(description: Blueprint, state: dict[str, torch.Tensor]) -> set[str]:
    after = clear_biases(state, description)
    return {name for name in state if bool(state[name].any()) and not bool(after[name].any())}


@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_clearing_biases_changes_no_output(case: Case) -> None:
    """Folded where the architecture can be, so that norm biases arrive there too; a second time changes nothing."""
    model = random_model(case)
    description = blueprint(model, folded=True)
    state = fold(model.state_dict(), description)
    folded = with_state(model, state)
    cleared = clear_biases(state, description)
    before, after = outputs(folded, description), outputs(with_state(model, cleared), description)
    for name, expected in before.items():
        change = after[name] - expected
        for dim, axis in enumerate(
            description.outputs.get(name) or description.outputs.get(name.rsplit(".", 1)[0], ())
        ):
            if description.unseen_means and any(description.spaces[s].role == Role.RESIDUAL for s in spaces_of(axis)):
                # Hidden states lose the mean that no norm sees.
                change = change - change.mean(dim, keepdim=True)
        allowed = FLOAT32 if "attentions" in name else EXACT
        assert float(change.abs().max()) <= allowed * float(expected.abs().max()), name
    again = clear_biases(cleared, description)
    # A mean that is gone is gone up to rounding.
    assert all(torch.allclose(again[name], tensor, rtol=1e-13, atol=1e-13) for name, tensor in cleared.items())


@pytest.mark.parametrize("case", MOST, ids=lambda case: case.name)
def test_a_blueprint_knows_the_bias_of_every_map_that_reads_a_space(case: Case) -> None:
    """As the model's modules have it; and a bias that is known is the module's own, whatever the map reads."""
    model = case.build()
    description, checked = blueprint(model), 0
    for weight in linear_maps(model).weights.values():
        for name, bias in zip(weight.names, weight.biases, strict=True):
            if bias is None and description.biases.get(name) in dict(model.named_buffers()):
                continue  # BART's model adds a buffer to what its head makes
            if name in description.biases or any(spaces_of(description.parameters[name][weight.dim])):
                assert description.biases.get(name) == bias, name
                checked += 1
    assert checked >= len(description.spaces) // 4 > 0 or not description.biases


def test_key_and_value_biases_of_a_vit_are_gone_and_query_biases_stay() -> None:
    model = random_model(BY_NAME["vit-classifier"])
    gone = cleared_names(blueprint(model), model.state_dict())
    assert gone == {f"vit.layers.{i}.attention.{part}_proj.bias" for i in range(2) for part in ("k", "v")}


def test_key_biases_that_rotary_positions_turn_stay() -> None:
    """RoPE turns the key bias with the position, so that softmax sees it; the value bias still moves on."""
    model = random_model(BY_NAME["neox-sequence-fully-rotary"])
    state = model.state_dict()
    after = clear_biases(state, blueprint(model))
    name = "gpt_neox.layers.0.attention.query_key_value.bias"
    heads = model.config.num_attention_heads
    before, now = (s[name].view(heads, 3, -1) for s in (state, after))
    assert torch.equal(before[:, :2], now[:, :2])
    assert not bool(now[:, 2].any())


def test_key_biases_that_positions_read_stay() -> None:
    """DeBERTa's position-to-content scores read the keys, bias included: clearing it by hand changes the model."""
    name = next(n for n in BY_NAME if n.startswith("deberta-v2"))
    model = random_model(BY_NAME[name])
    description = blueprint(model)
    assert description.seen_key_biases
    key = next(n for n in model.state_dict() if n.endswith("key_proj.bias"))
    assert bool(clear_biases(model.state_dict(), description)[key].any())
    state = copy.deepcopy(model.state_dict())
    state[key].zero_()
    with pytest.raises(AssertionError):
        assert_same_outputs(model, with_state(model, state), Alignment.identity(description))


def test_value_biases_stay_where_the_output_has_none() -> None:
    case = BY_NAME["modernbert"]
    model = random_model(case)
    assert cleared_names(blueprint(model), model.state_dict()) == set()


def test_an_alignment_without_biases_clears_them_is_saved_and_loads(tmp_path) -> None:
    """The twin is an ordinary checkpoint of the same class; the file remembers the gauge."""
    model = model_of_table("vit-classifier")
    description = blueprint(model, folded=True).without_biases()
    alignment = Alignment.random(description, torch.Generator().manual_seed(0))
    twin = alignment.apply(model)
    assert not bool(twin.state_dict()["vit.layers.0.attention.k_proj.bias"].any())
    alignment.save(tmp_path / "alignment.safetensors")
    loaded = Alignment.load(tmp_path / "alignment.safetensors", blueprint(model))
    assert loaded.blueprint.unbiased
    for name, tensor in loaded.apply(model.state_dict()).items():
        torch.testing.assert_close(tensor, twin.state_dict()[name], rtol=1e-12, atol=1e-12)
    checkpoints.save(twin, tmp_path / "twin")
    assert type(checkpoints.load(tmp_path / "twin")) is type(model)


def test_alignments_in_different_gauges_do_not_compose() -> None:
    description = blueprint(model_of_table("vit-classifier"), folded=True)
    with pytest.raises(SymmetryError, match="cannot be composed"):
        Alignment.identity(description).compose(Alignment.identity(description.without_biases()))


def test_kinds_of_heads_that_share_a_basis_each_pass_their_own_biases() -> None:
    """Two heads of one kind and three of another, read side by side: the output's bias takes up both constants."""
    b = BlueprintBuilder("two kinds of heads")
    few, many = b.space("few", Permutation(2), role="heads"), b.space("many", Permutation(3), role="heads")
    values = b.space("vo", Invertible(4), role="attention.vo")
    b.linear("few", reads=None, writes=b.per(few, values))
    b.linear("many", reads=None, writes=b.per(many, values))
    b.linear("out", reads=Concat(b.per(few, values), b.per(many, values)), writes=None)
    draw = torch.Generator().manual_seed(0)
    shapes = {"few": (8, 6), "many": (12, 6), "out": (5, 20)}
    state = {f"{n}.weight": torch.randn(shape, generator=draw).double() for n, shape in shapes.items()}
    state |= {f"{n}.bias": torch.randn(shape[0], generator=draw).double() for n, shape in shapes.items()}
    after = clear_biases(state, b.build())
    written = torch.cat([state["few.bias"], state["many.bias"]])
    torch.testing.assert_close(after["out.bias"], state["out.bias"] + state["out.weight"] @ written)
    assert not after["few.bias"].any()
    assert not after["many.bias"].any()
