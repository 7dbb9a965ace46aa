"""Alignments form a group that acts on models, and survive the disk."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from fusionlab.symmetry import Alignment, Blueprint, SymmetryError, blueprint

from .blueprints import crossed_blueprint, crossed_state, nested_blueprint, nested_state
from .models import CASES, generator, largest_difference, laws, moving_all, outputs, random_model, relative

NESTED = nested_blueprint()
CROSSED = crossed_blueprint()
BERT = blueprint(random_model("bert-sequence"))
VIT = blueprint(random_model("timm-plain"))
FIRST_LAYER = ("residual", "layers.0.heads", "layers.0.qk", "layers.0.vo", "layers.0.ffn")


@st.composite
def alignments(draw: st.DrawFn, description: Blueprint, names: tuple[str, ...]) -> Alignment:
    """Random elements for some of the named spaces; the others keep their basis."""
    everything = Alignment.random(description, generator(draw(st.integers(0, 2**31))))
    chosen = draw(st.sets(st.sampled_from(names)))
    return Alignment(description, {name: everything.elements[name] for name in names if name in chosen})


nested = alignments(NESTED, tuple(NESTED.spaces))
crossed = alignments(CROSSED, tuple(CROSSED.spaces))
bert = alignments(BERT, FIRST_LAYER)
either = st.one_of(
    st.tuples(nested, nested, nested),
    st.tuples(crossed, crossed, crossed),
    st.tuples(bert, bert, bert),
    st.tuples(*[alignments(VIT, FIRST_LAYER)] * 3),
)
STATES = {
    NESTED.fingerprint: nested_state(),
    CROSSED.fingerprint: crossed_state(),
    BERT.fingerprint: random_model("bert-sequence").state_dict(),
    VIT.fingerprint: random_model("timm-plain").state_dict(),
}


def same(f: Alignment, g: Alignment) -> bool:
    """Whether two alignments have the same element for every space."""
    spaces = f.blueprint.spaces
    return all(torch.allclose(f.element(s), g.element(s), rtol=1e-9, atol=1e-9) for s in spaces)


@laws
@given(either)
def test_composing_is_applying_one_after_the_other(three):
    """(g o h).apply == g.apply(h.apply), heads permuted and rotated at once (the semidirect product)."""
    g, h, _ = three
    state = STATES[g.blueprint.fingerprint]
    assert largest_difference(g.compose(h).apply(state), g.apply(h.apply(state))) < 1e-9


@laws
@given(either)
def test_composition_is_associative(three):
    f, g, h = three
    assert same(f.compose(g).compose(h), f.compose(g.compose(h)))


@laws
@given(either)
def test_inverse_undoes_from_both_sides(three):
    g = three[0]
    identity = Alignment.identity(g.blueprint)
    assert same(g.compose(g.inverse()), identity)
    assert same(g.inverse().compose(g), identity)
    state = STATES[g.blueprint.fingerprint]
    assert largest_difference(g.inverse().apply(g.apply(state)), state) < 1e-9


@laws
@given(either)
def test_inverse_of_a_product_is_the_product_of_inverses_in_reverse(three):
    g, h, _ = three
    assert same(g.compose(h).inverse(), h.inverse().compose(g.inverse()))


@laws
@given(nested)
def test_dual_and_primal_parameters_keep_their_product(g):
    """Blocks of blocks with shared elements: <G^-T w, G h> = <w, h> for whole parameters."""
    before = nested_state()
    after = g.apply(before)
    for kind in ("each", "fused"):
        product = (after[f"{kind}.primal"] * after[f"{kind}.dual"]).sum()
        torch.testing.assert_close(product, (before[f"{kind}.primal"] * before[f"{kind}.dual"]).sum())


def test_permuting_heads_moves_their_rotations_along():
    """Composition is not element by element: a rotation that acted on head 2 acts where head 2 went."""
    order = torch.tensor([2, 0, 1])
    rotations = Alignment(BERT, {"layers.0.qk": BERT.spaces["layers.0.qk"].group.random((3,), generator(0))})
    permutation = Alignment(BERT, {"layers.0.heads": order})
    moved = permutation.compose(rotations)
    assert torch.equal(moved.element("layers.0.qk"), rotations.element("layers.0.qk")[order])
    assert not same(moved, rotations.compose(permutation))


@pytest.mark.parametrize("name", CASES)
def test_inverse_restores_every_parameter(name):
    model = random_model(name)
    alignment = moving_all(blueprint(model))
    twin = alignment.apply(model)
    assert largest_difference(twin.state_dict(), model.state_dict()) > 0.1
    assert largest_difference(alignment.inverse().apply(twin).state_dict(), model.state_dict()) < 1e-12


def test_identity_changes_nothing():
    model = random_model("bert-sequence")
    identity = Alignment.identity(BERT)
    written_out = Alignment(BERT, {name: identity.element(name) for name in BERT.spaces})
    for nothing in (identity, written_out):
        assert largest_difference(nothing.apply(model).state_dict(), model.state_dict()) == 0


def test_alignments_of_different_architectures_do_not_compose():
    with pytest.raises(SymmetryError, match="different architectures"):
        Alignment.identity(BERT).compose(Alignment.identity(VIT))


@pytest.mark.parametrize("name", ["bert-sequence", "timm-plain"])
def test_module_gives_module_and_dict_gives_dict_and_inputs_stay(name):
    model = random_model(name)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    alignment = moving_all(blueprint(model))
    elements = {space: element.clone() for space, element in alignment.elements.items()}
    twin, state = alignment.apply(model), alignment.apply(model.state_dict())
    assert type(twin) is type(model)
    assert twin is not model
    assert type(state) is dict
    assert largest_difference(twin.state_dict(), state) == 0
    assert largest_difference(model.state_dict(), before) == 0
    assert all(torch.equal(alignment.elements[space], element) for space, element in elements.items())
    storages = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert not any(tensor.data_ptr() in storages for tensor in twin.state_dict().values())
    alignment.compose(alignment.inverse())
    assert all(torch.equal(alignment.elements[space], element) for space, element in elements.items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_models_keep_their_type_and_are_rounded_once(dtype):
    """The twin is the float32 twin rounded; nothing is computed in the narrow type."""
    model = random_model("bert-sequence").to(dtype)
    alignment = moving_all(BERT)
    twin = alignment.apply(model)
    assert {parameter.dtype for parameter in twin.parameters()} == {dtype}
    wide = alignment.apply({name: tensor.float() for name, tensor in model.state_dict().items()})
    assert all(torch.equal(tensor, wide[name].to(dtype)) for name, tensor in twin.state_dict().items())
    exact = Alignment(BERT, {"residual": alignment.elements["residual"], "layers.0.ffn": torch.arange(40).flip(0)})
    for name, tensor in exact.inverse().apply(exact.apply(model)).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_apply_refuses_a_model_of_another_shape():
    state = random_model("bert-sequence").state_dict() | {"classifier.weight": torch.zeros(5)}
    with pytest.raises(SymmetryError, match=r"'classifier\.weight' of shape 5 "):
        Alignment.identity(BERT).apply(state)


def test_random_is_reproducible_and_has_an_element_for_every_space():
    first, again, other = (Alignment.random(BERT, generator(seed)) for seed in (0, 0, 1))
    assert set(first.elements) == set(BERT.spaces)
    assert same(first, again)
    assert not same(first, other)


def test_saved_alignment_loads_as_it_was(tmp_path: Path):
    alignment = moving_all(BERT)
    alignment.save(tmp_path / "alignment.safetensors")
    loaded = Alignment.load(tmp_path / "alignment.safetensors", BERT)
    assert loaded.elements.keys() == alignment.elements.keys()
    assert all(torch.equal(loaded.elements[name], element) for name, element in alignment.elements.items())
    model = random_model("bert-sequence")
    assert relative(outputs(loaded.apply(model)), outputs(alignment.apply(model))) < 1e-12


def test_alignment_of_another_blueprint_is_refused(tmp_path: Path):
    path = tmp_path / "alignment.safetensors"
    moving_all(VIT).save(path)
    with pytest.raises(SymmetryError, match=rf"^{path} is an alignment of another timm\.VisionTransformer model, not"):
        Alignment.load(path, BERT)


def test_truncated_missing_and_foreign_files_are_refused(tmp_path: Path):
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    moving_all(BERT).save(whole)
    content = whole.read_bytes()
    for length in (0, 4, 100, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        with pytest.raises(SymmetryError, match=f"^{cut} is not a readable alignment: "):
            Alignment.load(cut, BERT)
    with pytest.raises(SymmetryError, match="not a readable alignment"):
        Alignment.load(tmp_path / "absent.safetensors", BERT)
    save_file({"weight": torch.zeros(2)}, cut)
    with pytest.raises(SymmetryError, match="is an alignment of another kind of model"):
        Alignment.load(cut, BERT)


@pytest.mark.parametrize(
    ("name", "element", "told"),
    [
        ("residual", torch.zeros(24, dtype=torch.int64), r"no element of S\(24\) for 'residual': expected every index"),
        ("layers.0.ffn", torch.arange(39), r"S\(40\) for 'layers.0.ffn': expected an int64 index of shape"),
        ("layers.1.qk", torch.zeros(3, 8, 8), r"GL\(8\) for 'layers.1.qk': expected finite, invertible"),
        ("layers.1.vo", torch.full((3, 8, 8), torch.nan), r"GL\(8\) for 'layers.1.vo': expected finite, invertible"),
        ("layers.1.vo", torch.eye(8), r"GL\(8\) for 'layers.1.vo': expected a real tensor of shape"),
        ("layers.1.vo", torch.zeros(3, 8, 8, dtype=torch.float16), "expected finite, invertible"),
        ("layers.7.vo", torch.eye(8), r"holds 'layers\.7\.vo', which is no space of a bert model"),
    ],
)
def test_files_without_group_elements_are_refused(tmp_path: Path, name, element, told):
    good, path = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    Alignment.identity(BERT).save(good)
    with safe_open(good, framework="pt") as file:
        save_file({name: element}, path, file.metadata())
    with pytest.raises(SymmetryError, match=told):
        Alignment.load(path, BERT)
