"""Optimal transport fusion: a model and itself in another order are one model, and maps are those of the definition."""

import copy

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab.errors import InputError
from fusionlab.merging import find_method, merge_states
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.families import cases_encoders, cases_gpt, cases_vision, harness
from tests.matching.sampling import sample
from tests.statistics.passes import activations_of, batched, examples_for, inputs_by_hand
from tests.symmetry.models import generator, outputs, random_model, randomize, relative

State = dict[str, Tensor]

EXACT = {"solver": "exact"}
SOFT = {"solver": "sinkhorn", "regularization": 0.002}
RESIDUAL = ("mean", "last", "first", "all")


def llama(**changes: object) -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=24,
            intermediate_size=20,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            **changes,
        )
    )


def build(name: str, seed: int) -> nn.Module:
    if name in FAMILIES:
        return harness.random_model(FAMILIES[name], seed)
    return randomize(llama(), seed) if name == "llama" else random_model(name, seed)


def reorder(description: Blueprint, seed: int, only: tuple[str, ...] | None = None) -> Alignment:
    """A random permutation of the units of every space (heads in order, no signs)."""
    draw = generator(seed)
    elements = {}
    for name, space in description.spaces.items():
        chosen = only is None or space.role in only
        if chosen and isinstance(space.group, Invertible):
            order = Permutation(space.group.size).random(space.copies, draw)
            elements[name] = torch.eye(space.group.size, dtype=torch.float64)[order]
        elif chosen and isinstance(space.group, Permutation) and not space.role.startswith("heads"):
            elements[name] = space.group.random(space.copies, draw)
    return Alignment(description, elements)


def case(name: str, folded: bool) -> tuple[nn.Module, State, Blueprint]:
    model = build(name, 1)
    description = blueprint(model, folded=folded)
    state = fold(model.state_dict(), description) if folded else dict(model.state_dict())
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    return twin, state, description


def activations(model: nn.Module, states: list[State], description: Blueprint) -> list[dict]:
    draw = generator(9)
    batch = {i.name: i.random(40, draw) for i in description.inputs}
    found = []
    for state in states:
        twin = copy.deepcopy(model)
        twin.load_state_dict(state)
        found.append({"activations": sample(twin, batch)})
    return found


def worst(found: State, expected: State) -> float:
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)


CASES = [
    ("bert-sequence", False),
    ("vit-classifier", False),
    ("vit-classifier", True),
    ("timm-plain", True),
    ("gpt2-lm-untied", True),
    ("llama", False),
    ("vit-model", False),
    ("gpt2", False),
    ("electra-masked", False),
    ("swin-classifier", True),
]
FAMILIES = {case.name: case for case in (*cases_gpt.CASES, *cases_encoders.CASES, *cases_vision.CASES)}


@pytest.mark.parametrize("options", [EXACT, SOFT], ids=["exact", "soft"])
@pytest.mark.parametrize("residual", RESIDUAL)
@pytest.mark.parametrize(("name", "folded"), CASES)
def test_model_and_itself_in_another_order_are_one_model(name, folded, residual, options):
    """OT-WTS: stream, inside heads and hidden units permuted; the merge is the first model, whatever the policy."""
    _, state, description = case(name, folded)
    twin = reorder(description, 3).apply(state)
    assert worst(twin, state) > 0.1
    merged = merge_states([state, twin], "ot", blueprint=description, residual=residual, **options)
    assert worst(merged, state) < (1e-12 if options is EXACT else 1e-3)


@pytest.mark.parametrize("options", [EXACT, SOFT], ids=["exact", "soft"])
@pytest.mark.parametrize("residual", RESIDUAL)
@pytest.mark.parametrize(("name", "folded"), CASES)
def test_the_same_from_activations(name, folded, residual, options):
    """OT-ACTS and OT-ACTS-EMD."""
    model, state, description = case(name, folded)
    twin = reorder(description, 3).apply(state)
    merged = merge_states(
        [state, twin],
        "ot",
        blueprint=description,
        statistics=activations(model, [state, twin], description),
        features="activations",
        residual=residual,
        **options,
    )
    assert worst(merged, state) < (1e-12 if options is EXACT else 1e-3)


@pytest.mark.parametrize("attention", ["separate", "joint", "equal"])
@pytest.mark.parametrize("heads", ["mixed", "within"])
@pytest.mark.parametrize("features", ["weights", "activations"])
def test_every_choice_of_attention_maps_recovers_the_order(features, heads, attention):
    """Queries and keys permuted alike inside every head, values too; and whole heads where maps may mix them."""
    model, state, description = case("vit-classifier", True)
    hidden = reorder(description, 3)
    if heads == "mixed":
        moved = {n: s.group.random((), generator(8)) for n, s in description.spaces.items() if s.role == "heads"}
        hidden = Alignment(description, moved).compose(hidden)
    twin = hidden.apply(state)
    statistics = activations(model, [state, twin], description) if features == "activations" else ()
    merged = merge_states(
        [state, twin],
        "ot",
        blueprint=description,
        statistics=statistics,
        features=features,
        heads=heads,
        attention=attention,
        **EXACT,
    )
    assert worst(merged, state) < 1e-12


@pytest.mark.parametrize("residual", ["first", "all"])
@pytest.mark.parametrize(
    ("name", "folded"), [("bert-sequence", False), ("vit-classifier", True), ("gpt2-lm-untied", True)]
)
def test_hard_maps_inside_spaces_keep_the_function(name, folded, residual):
    """One permutation for the stream and each head: with all weight on it, the transported model computes the same."""
    model, anchor, description = case(name, folded)
    other = build(name, 2)
    state = fold(other.state_dict(), description) if folded else other.state_dict()
    options = {"residual": residual, "attention": "equal", "heads": "within", **EXACT}
    merged = merge_states([anchor, state], "ot", weights=[0, 1], blueprint=description, **options)
    assert worst(merged, state) > 0.1
    twin = copy.deepcopy(model)
    twin.load_state_dict(merged)
    source = copy.deepcopy(model)
    source.load_state_dict(state)
    assert relative(outputs(twin), outputs(source)) < 1e-9


def test_maps_that_mix_heads_do_not_keep_the_function():
    """The paper's own choice; said so in the documentation, and so it had better be true."""
    model, anchor, description = case("vit-classifier", True)
    state = fold(build("vit-classifier", 2).state_dict(), description)
    twin = copy.deepcopy(model)
    twin.load_state_dict(
        merge_states([anchor, state], "ot", weights=[0, 1], blueprint=description, residual="first", **EXACT)
    )
    source = copy.deepcopy(model)
    source.load_state_dict(state)
    assert relative(outputs(twin), outputs(source)) > 1e-3


def test_hidden_units_as_the_definition_says():
    """A bare encoder's feed-forward layer: scipy's assignment on distances of unit-length rows with their bias."""
    first, second = (random_model("bert-model", seed).state_dict() for seed in (0, 1))
    description = blueprint(random_model("bert-model"))
    merged = merge_states([first, second], "ot", weights=[0.25, 0.75], blueprint=description, **EXACT)
    at = "encoder.layer.0"
    up, bias, down = (f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight")
    rows = [torch.cat([state[up], state[bias][:, None]], 1) for state in (first, second)]
    rows = [part / part.norm(dim=1, keepdim=True) for part in rows]
    _, order = linear_sum_assignment(cdist(*(part.numpy() for part in rows)))
    torch.testing.assert_close(merged[up], 0.25 * first[up] + 0.75 * second[up][order])
    torch.testing.assert_close(merged[bias], 0.25 * first[bias] + 0.75 * second[bias][order])
    torch.testing.assert_close(merged[down], 0.25 * first[down] + 0.75 * second[down][:, order])


def test_hidden_units_from_activations_as_the_definition_says():
    """The same from what both models' units are before the activation, for every token that counts: centred, of length
    one."""
    models = [random_model("bert-model", seed) for seed in (0, 1)]
    examples = examples_for(models[0], 12)
    first, second = (model.state_dict() for model in models)
    merged = merge_states(
        [first, second],
        "ot",
        weights=[0.25, 0.75],
        blueprint=blueprint(models[0]),
        statistics=[{"activations": activations_of(model, batched(examples, 5))} for model in models],
        features="activations",
        **EXACT,
    )
    at = "encoder.layer.0"
    up, bias, down = (f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight")
    rows = []
    for model in models:
        units = inputs_by_hand(model, examples, lambda value, example: True)[up] @ model.get_parameter(up).detach().mT
        units = units.mT - units.mT.mean(1, keepdim=True)
        rows.append(units / units.norm(dim=1, keepdim=True))
    _, order = linear_sum_assignment(cdist(*(part.numpy() for part in rows)))
    torch.testing.assert_close(merged[up], 0.25 * first[up] + 0.75 * second[up][order])
    torch.testing.assert_close(merged[bias], 0.25 * first[bias] + 0.75 * second[bias][order])
    torch.testing.assert_close(merged[down], 0.25 * first[down] + 0.75 * second[down][:, order])


def test_averaging_policy_halves_the_map_at_every_layer():
    """Identical models but for the order of what the last layer adds to the stream: only what comes later feels it.

    The first map is the identity; the last writer's own map is the order P, and what reads the stream after it is moved
    by the mean of both.
    """
    _, state, description = case("vit-classifier", True)
    order = torch.randperm(24, generator=generator(4))
    other = dict(state)
    for name in ("vit.layers.1.mlp.fc2.weight", "vit.layers.1.mlp.fc2.bias"):
        other[name] = state[name][order]
    merged = {
        policy: merge_states([state, other], "ot", weights=[0, 1], blueprint=description, residual=policy, **EXACT)
        for policy in ("first", "last", "mean")
    }
    assert torch.equal(merged["first"]["classifier.weight"], state["classifier.weight"])
    assert (
        worst({"x": merged["first"]["vit.layers.1.mlp.fc2.weight"]}, {"x": other["vit.layers.1.mlp.fc2.weight"]}) == 0
    )
    for policy in ("last", "mean"):
        torch.testing.assert_close(merged[policy]["vit.layers.1.mlp.fc2.weight"], state["vit.layers.1.mlp.fc2.weight"])
        before = "vit.layers.1.mlp.fc1.weight"
        torch.testing.assert_close(merged[policy][before], state[before])
    inverse = order.argsort()
    moved = state["classifier.weight"][:, inverse]
    torch.testing.assert_close(merged["last"]["classifier.weight"], moved)
    torch.testing.assert_close(merged["mean"]["classifier.weight"], (moved + state["classifier.weight"]) / 2)


def test_rotary_planes_stay_where_they_are():
    """Queries and keys behind rotary positions admit no permutations, and are averaged in order."""
    first, second = build("llama", 1).state_dict(), build("llama", 2).state_dict()
    description = blueprint(build("llama", 1))
    # Features that are alike on the stream leave its map the identity.
    same = {name: first[name] if "embed" in name else second[name] for name in first}
    merged = merge_states([first, same], "ot", weights=[0, 1], blueprint=description, residual="first", **EXACT)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(merged[name], second[name])
    assert not torch.equal(merged["model.layers.0.mlp.up_proj.weight"], second["model.layers.0.mlp.up_proj.weight"])


def test_several_models_and_types():
    """Each of several models is transported to the first; types are the first's, inputs are not touched."""
    _, state, description = case("bert-sequence", False)
    states = [state, *(reorder(description, seed).apply(state) for seed in (3, 4))]
    states = [{name: x.float() for name, x in state.items()} for state in states]
    copies = [{name: x.clone() for name, x in state.items()} for state in states]
    merged = merge_states(states, "ot", weights=[1, 2, 3], blueprint=description, **EXACT)
    assert {x.dtype for x in merged.values()} == {torch.float32}
    assert worst(merged, states[0]) < 1e-6
    assert all(torch.equal(s[name], c[name]) for s, c in zip(states, copies, strict=True) for name in s)


def test_what_it_needs():
    """A blueprint always; activations if they are the features, of the same rows."""
    method = find_method("ot")
    assert method.requires() == ("blueprint",)
    assert method.requires(features="activations") == ("blueprint", "activations")
    model, state, description = case("bert-sequence", False)
    with pytest.raises(InputError, match="description of the architecture"):
        merge_states([state, state], "ot")
    found = activations(model, [state, state], description)
    draw = generator(9)
    batch = {i.name: i.random(3, draw) for i in description.inputs}
    found[1] = {"activations": sample(model, batch, drawn="others")}
    with pytest.raises(InputError, match="different inputs"):
        merge_states([state, state], "ot", blueprint=description, statistics=found, features="activations")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": "gradients"}, "features is 'gradients'"),
        ({"residual": "weighted"}, "residual is 'weighted'"),
        ({"attention": "none"}, "attention is 'none'"),
        ({"heads": "each"}, "heads is 'each'"),
        ({"solver": "emd"}, "solver is 'emd'"),
        ({"ground_metric": "manhattan"}, "metric is 'manhattan'"),
        ({"regularization": -1}, "regularization is -1"),
    ],
)
def test_options_are_checked(options, words):
    """An option that does not exist is named."""
    _, state, description = case("bert-sequence", False)
    with pytest.raises(InputError, match=words):
        merge_states([state, state], "ot", blueprint=description, **options)
