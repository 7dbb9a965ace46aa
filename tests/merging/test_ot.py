"""Optimal transport fusion: a model and itself in another order are one model, and maps are those of the definition."""

import copy
from itertools import cycle, product

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import find_method, merge_states
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Permutation
from fusionlab.symmetry.roles import Role
from tests.matching.sampling import sample
from tests.merging.transported import EXACT, activations, build, case, worst
from tests.parts import EVERY
from tests.symmetry.infer.cases import BY_NAME, audio, decoders, encoders, experts, seq2seq, state_space, vision
from tests.symmetry.infer.cases.sample import described
from tests.symmetry.models import generator, outputs, randomize, relative

SOFT = {"solver": "sinkhorn", "regularization": 0.002}


# Classes of every kind; in make test one with heads that share an order of coordinates, and layers without any.
KINDS = (experts, decoders, encoders, vision, seq2seq, audio, state_space)
SOME = [sample for kind in KINDS for sample in kind.SAMPLES if EVERY or sample.name == "qwen3_next"]
RESIDUAL = ("mean", "last", "first", "all")


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


# Policies and solvers by turns: all pairs of them for some architecture.
TURNS = [(*one, *turn) for one, turn in zip(CASES, cycle(product(RESIDUAL, (EXACT, SOFT))), strict=False)]


@pytest.mark.parametrize(("name", "folded", "residual", "options"), TURNS)
def test_model_and_itself_in_another_order_are_one_model(name, folded, residual, options):
    """OT-WTS: stream, inside heads and hidden units permuted; the merge is the first model, whatever the policy."""
    _, state, description = case(name, folded)
    twin = reorder(description, 3).apply(state)
    assert worst(twin, state) > 0.1
    merged = merge_states([state, twin], "ot", blueprint=description, residual=residual, **options)
    assert worst(merged, state) < (1e-12 if options is EXACT else 1e-3)


@pytest.mark.parametrize(("name", "folded", "residual", "options"), TURNS)
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


@pytest.mark.parametrize(
    ("residual", "heads", "attention"),
    [("mean", "mixed", "separate"), ("first", "within", "joint"), ("all", "mixed", "equal")],
)
def test_orders_that_all_heads_share_are_recovered(residual, heads, attention):
    """Coordinates that are not turned by positions, under norms over queries and keys: gains move with what is scaled.

    Each has as many signs as there are heads, and queries and keys share its place.
    """
    model = randomize(BY_NAME["glm4_moe"].build(), 0)
    state, description = model.state_dict(), blueprint(model)
    twin = reorder(description, 3, only=(Role.QUERY_KEY, Role.RESIDUAL)).apply(state)
    assert worst(twin, state) > 0.1
    options = {"residual": residual, "heads": heads, "attention": attention, **EXACT}
    merged = merge_states([state, twin], "ot", blueprint=description, **options)
    assert worst(merged, state) < 1e-12


@pytest.mark.parametrize("sample", SOME, ids=lambda sample: sample.name)
@pytest.mark.parametrize("attention", ["separate", "joint", "equal"])
def test_transport_to_itself_changes_nothing(sample, attention):
    """Whatever the symmetry of a class, whose units are found in all of its parameters."""
    model = randomize(sample.build(), 0)
    state, description = model.state_dict(), described(model, sample)
    for residual in ("mean", "all"):
        options = {"attention": attention, "residual": residual, **EXACT}
        try:
            merged = merge_states([state, state], "ot", blueprint=description, **options)
        except InputError as refusal:
            if "not as many keys as queries" not in str(refusal):
                raise
            continue
        for name, tensor in state.items():
            assert torch.allclose(merged[name], tensor, rtol=0, atol=1e-12), name


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
