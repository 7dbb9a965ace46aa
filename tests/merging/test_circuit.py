"""Circuits of attention heads: the mean product, as near as a head of the same width can come to it."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from fusionlab.merging.circuit import circuits
from fusionlab.models import with_state
from fusionlab.symmetry import blueprint
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.float64 import InFloat64
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.families import cases_deberta, cases_gpt, cases_llama, cases_seq2seq
from tests.families.harness import Case
from tests.families.harness import random_model as family_model
from tests.merging.circuits import products, rebased
from tests.parts import one_in
from tests.symmetry.models import generator, largest_difference, outputs, random_model, relative

# Rotary positions on all of a head and on a part, one value for several queries and for all, norms of queries and keys,
# projections of relative positions (fused and not), cross attention, and the sizes of the circuits that each leaves.
QK, VO = "attention.qk", "attention.vo"


EXPECTED = {
    "llama-lm": {(VO, 6)},
    "llama-lm-biases": {(VO, 4)},
    "mistral-lm": {(VO, 4)},
    "qwen2-sequence": {(VO, 8)},
    "qwen3-lm": {(VO, 8)},
    "phi3-lm-partial": {(QK, 2), (VO, 8)},
    "neox-lm": {(QK, 4), (VO, 8)},
    "gptj-lm": {(QK, 4), (VO, 8)},
    "opt-lm-narrow-words": {(QK, 8), (VO, 8)},
    "deberta": {(QK, 8), (VO, 8)},
    "deberta-v2": {(QK, 8), (VO, 8)},
    "deberta-v3-sequence": {(QK, 8), (VO, 8)},
    "t5-lm": {(QK, 4), (VO, 4)},
}


FAMILIES: dict[str, Case] = {
    case.name: case
    for cases in (cases_llama, cases_gpt, cases_deberta, cases_seq2seq)
    for case in cases.CASES
    if case.name in EXPECTED
}


def small_gpt2(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=31, n_positions=16, n_embd=24, n_layer=2, n_head=3, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator(seed), dtype=torch.float64)
    return model


@pytest.mark.parametrize("name", ["vit-classifier", "bert-sequence", "timm-plain", "roberta-token", "gpt2"])
def test_twin_gives_the_models_function(name: str) -> None:
    """A model and its twin in other bases inside heads merge to a model of the same function, whatever the weights."""
    model = small_gpt2(0) if name == "gpt2" else random_model(name)
    description = blueprint(model)
    assert len(circuits(description)) == 4, "Q-K and V-O of both layers"
    state = model.state_dict()
    merged = merge_states([state, rebased(state, description, 1)], "circuit", [1, 3], blueprint=description)
    assert relative(outputs(with_state(model, merged)), outputs(model)) < 1e-9


@pytest.mark.parametrize("name", one_in(3, sorted(FAMILIES)))
def test_twin_in_every_family(name: str) -> None:
    """The same for rotary positions whole and partial, grouped queries, Q-K norms and relative positions."""
    model = family_model(FAMILIES[name])
    description = blueprint(model)
    state = model.state_dict()
    twin = rebased(state, description, 1)
    assert largest_difference(twin, state) > 0.01
    merged = merge_states([state, twin], "circuit", blueprint=description)
    # Some of these compute in float32 where they are not kept from it.
    with InFloat64():
        assert relative(outputs(with_state(model, merged)), outputs(model)) < 1e-9


@pytest.mark.parametrize("layer", [0, 1])
def test_equals_a_dense_decomposition(layer: int) -> None:
    """The merged products are the truncated SVD of the mean products, formed in full."""
    states = [random_model("vit-classifier", seed).state_dict() for seed in range(3)]
    weights = [0.5, 0.2, 0.3]
    merged = merge_states(states, "circuit", weights, blueprint=blueprint(random_model("vit-classifier")))
    for kind, found in enumerate(products(merged, layer)):
        mean = sum(w * products(state, layer)[kind] for w, state in zip(weights, states, strict=True))
        u, s, v = torch.linalg.svd(mean, full_matrices=False)
        expected = u[..., :8] * s[..., None, :8] @ v[..., :8, :]
        assert s[..., 8].min() > 0.1, "the truncation must matter"
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_basis_of_any_model_does_not_matter() -> None:
    """Other bases inside the heads of each model give the same products, where the plain mean gives others."""
    description = blueprint(random_model("vit-classifier"))
    states = [random_model("vit-classifier", seed).state_dict() for seed in range(2)]
    turned = [rebased(state, description, 5 + seed) for seed, state in enumerate(states)]
    for method, close in (("circuit", True), ("simple", False)):
        pair = [merge_states(given, method, [1, 2], blueprint=description) for given in (states, turned)]
        for first, second in zip(products(pair[0]), products(pair[1]), strict=True):
            assert (relative(second, first) < 1e-11) == close


def test_factors_are_balanced() -> None:
    """Query and key of every merged head have one Gram matrix, diagonal."""
    states = [random_model("vit-classifier", seed).state_dict() for seed in range(2)]
    merged = merge_states(states, "circuit", blueprint=blueprint(random_model("vit-classifier")))
    at = "vit.layers.0.attention"
    q, k = (
        torch.cat((merged[f"{at}.{n}_proj.weight"], merged[f"{at}.{n}_proj.bias"][:, None]), 1).unflatten(0, (3, 8))
        for n in "qk"
    )
    torch.testing.assert_close(q @ q.mT, k @ k.mT, rtol=0, atol=1e-11)
    torch.testing.assert_close(q @ q.mT, torch.diag_embed((q @ q.mT).diagonal(dim1=-2, dim2=-1)), rtol=0, atol=1e-11)


def test_all_else_is_averaged() -> None:
    """What lies along no circuit is the plain mean."""
    states = [random_model("vit-classifier", seed).state_dict() for seed in range(2)]
    description = blueprint(random_model("vit-classifier"))
    inside = description.touching(found.space.name for found in circuits(description))
    merged, mean = (merge_states(states, method, blueprint=description) for method in ("circuit", "simple"))
    assert {name for name in mean if not torch.equal(merged[name], mean[name])} == set(inside)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_which_spaces_are_circuits(name: str) -> None:
    """No rotary plane and no normed query is: the group is the condition."""
    found = circuits(blueprint(FAMILIES[name].build()))
    assert {(c.space.role, c.space.group.size) for c in found} == EXPECTED[name]


def test_positions_lie_along_the_space_too() -> None:
    """DeBERTa's projections of relative positions, with their biases, are stacked beside the tokens' ones."""
    found = circuits(blueprint(FAMILIES["deberta-v2"].build()))[0]
    for side, kind in ((found.primal, "query"), (found.dual, "key")):
        names = {name.rsplit("self.", 1)[1] for part in side for name in part.names}
        assert names == {f"{p}{kind}_proj.{q}" for p in ("", "pos_") for q in ("weight", "bias")}


def test_a_space_that_meets_another_circuit_is_averaged() -> None:
    """Where one parameter lies between two such spaces, the product of one depends on the basis of the other."""
    b = BlueprintBuilder("coupled")
    heads = b.space("heads", Permutation(2), role="heads")
    roles = {"qk": "attention.qk", "vo": "attention.vo", "free": "attention.vo"}
    qk, vo, free = (b.space(name, Invertible(3), role, index=("heads",)) for name, role in roles.items())
    b.parameter("between", b.per(heads, qk), b.per(heads, vo))
    for name, axis in (("q", qk.dual()), ("v", vo.dual()), ("one", free), ("other", free.dual())):
        b.parameter(name, b.per(heads, axis), None)
    assert [found.space.name for found in circuits(b.build())] == ["free"]


def test_heads_wider_than_the_model() -> None:
    """A head that has more features than it can fill keeps its shape and its function."""
    states = [random_model("vit-classifier").state_dict()]
    description = blueprint(random_model("vit-classifier"))
    names = [n for n in states[0] if "q_proj" in n or "k_proj" in n]
    narrow = {n: t.clone() for n, t in states[0].items()}
    for name in names:
        if name.endswith("weight"):
            narrow[name][:, 3:] = 0
    merged = merge_states([narrow, rebased(narrow, description, 2)], "circuit", blueprint=description)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in merged.values())
    torch.testing.assert_close(products(merged)[0], products(narrow)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    """Decompositions run in float64, the result is rounded once."""
    exact = [random_model("vit-classifier", seed).to(dtype).state_dict() for seed in range(2)]
    description = blueprint(random_model("vit-classifier"))
    merged = merge_states(exact, "circuit", blueprint=description)
    assert {tensor.dtype for tensor in merged.values()} == {dtype}
    reference = merge_states([{n: t.double() for n, t in s.items()} for s in exact], "circuit", blueprint=description)
    for low, high in zip(products({n: t.double() for n, t in merged.items()}), products(reference), strict=True):
        assert relative(low, high) < 8 * torch.finfo(dtype).eps


def test_bad_input() -> None:
    """Refused with what was expected."""
    states = [random_model("vit-classifier", seed).state_dict() for seed in range(2)]
    description = blueprint(random_model("vit-classifier"))
    with pytest.raises(InputError, match="needs a description of the architecture"):
        merge_states(states, "circuit")
    with pytest.raises(InputError, match="metric is 'nope'; expected one of frobenius, gram"):
        merge_states(states, "circuit", blueprint=description, metric="nope")
    with pytest.raises(InputError, match="needs Gram matrices"):
        merge_states(states, "circuit", blueprint=description, metric="gram")
    with pytest.raises(InputError, match="ridge is 0"):
        merge_states(states, "circuit", blueprint=description, ridge=0)
