"""Weight matching: never further away, never another function, and at the optimum where there is a closed form."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fusionlab.matching import assignment as assigning
from fusionlab.matching.options import MatchOptions, preset
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.models import (
    CASES,
    HEAD_DIM,
    HEADS,
    generator,
    moving_all,
    outputs,
    random_model,
    relative,
    rigid,
)

State = Mapping[str, Tensor]

SPACES = (
    ("attention",),
    ("attention.qk",),
    ("attention.vo",),
    ("ffn",),
    ("heads",),
    ("heads", "attention"),
    ("heads", "attention.vo"),
    ("attention", "ffn"),
    ("residual",),
    ("ffn", "residual"),
    ("all",),
)
UNCOUPLED = ("heads", "attention.qk", "attention.vo", "ffn")
RESCALES = ("off", "sequential", "joint")
NAME = "bert-sequence"


@pytest.fixture
def two_threads() -> None:
    """Solvers run beside products, as on any real machine; the package's own fixture restores the number."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def pair(name: str = NAME) -> tuple[nn.Module, nn.Module, Blueprint]:
    source, anchor = random_model(name, seed=0), random_model(name, seed=1)
    return source, anchor, blueprint(anchor)


def noisy(state: State, size: float, seed: int = 5) -> dict[str, Tensor]:
    """The state with Gaussian noise, relative to each parameter's own size."""
    draw = generator(seed)
    return {
        name: x + size * x.std(correction=0) * torch.randn(x.shape, generator=draw, dtype=x.dtype)
        for name, x in state.items()
    }


def distance(first: State, second: State) -> float:
    return squared_distance(first, second) ** 0.5


def norm(state: State) -> float:
    return sum(float(x.double().square().sum()) for x in state.values()) ** 0.5


@pytest.mark.parametrize("rescale", RESCALES)
@pytest.mark.parametrize("name", CASES)
def test_matching_never_moves_away_and_never_changes_the_function(name, rescale):
    """Every choice of spaces and layers, for independent models: distance falls or stays, outputs stay to 1e-9."""
    source, anchor, description = pair(name)
    expected, before = outputs(source), distance(source.state_dict(), anchor.state_dict())
    for spaces, layers in itertools.product(SPACES, ("all", "0", "last:1")):
        if "residual" in spaces and "residual" not in description.spaces:
            continue
        options = MatchOptions(spaces=spaces, layers=layers, rescale=rescale, sweeps=2)
        alignment = match_weights(source.state_dict(), anchor.state_dict(), description, options)
        twin = alignment.apply(source)
        after = distance(twin.state_dict(), anchor.state_dict())
        # The order of three heads may be the best one already; everything else can always be improved.
        assert after < before or (spaces == ("heads",) and after == before), (spaces, layers)
        assert relative(outputs(twin), expected) < 1e-9, (spaces, layers)
        allowed = {space.name for space in options.select(description)}
        assert set(alignment.elements) <= allowed
        for space, element in alignment.elements.items():
            assert description.spaces[space].group.check(element, description.spaces[space].copies) is None


@pytest.mark.parametrize("rescale", RESCALES)
@pytest.mark.parametrize("name", CASES)
def test_model_that_is_matched_already_stays_where_it_is(name, rescale):
    """A model and itself: no element moves anything, to the bit."""
    model, _, description = pair(name)
    state = model.state_dict()
    twin = match_weights(state, state, description, MatchOptions(spaces=("all",), rescale=rescale)).apply(state)
    assert distance(twin, state) <= 1e-7 * norm(state)
    plain = match_weights(state, state, description, MatchOptions(spaces=("ffn", "heads"))).apply(state)
    assert distance(plain, state) == 0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("roles", [("attention", "ffn"), ("heads", "attention", "ffn"), ("heads", "ffn")])
def test_planted_alignment_is_recovered(name, roles):
    """A model hidden behind rotations and permutations comes back to distance zero."""
    anchor, _, description = pair(name)
    planted = rigid(description, seed=3, names=tuple(r for r in UNCOUPLED if r.split(".")[0] in roles))
    source = planted.apply(anchor.state_dict())
    assert distance(source, anchor.state_dict()) > 0.1 * norm(source)
    found = match_weights(source, anchor.state_dict(), description, MatchOptions(spaces=roles, rescale="off"))
    assert distance(found.apply(source), anchor.state_dict()) < 1e-10 * norm(source)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if not n.endswith("-model")])
def test_planted_permutation_of_the_residual_stream_is_recovered(name):
    anchor, _, description = pair(name)
    source = rigid(description, seed=3, names=("residual",)).apply(anchor.state_dict())
    found = match_weights(source, anchor.state_dict(), description, MatchOptions(spaces=("residual",)))
    assert distance(found.apply(source), anchor.state_dict()) == 0


@pytest.mark.parametrize("rescale", ["sequential", "joint"])
@pytest.mark.parametrize("name", CASES)
def test_planted_rotation_and_scale_are_recovered(name, rescale):
    anchor, _, description = pair(name)
    planted = rigid(description, seed=3, names=("attention.qk", "attention.vo"))
    scales = torch.randn(len(planted.elements), HEADS, 1, 1, generator=generator(4), dtype=torch.float64).exp()
    scaled = {space: a * element for a, (space, element) in zip(scales, planted.elements.items(), strict=True)}
    source = Alignment(description, scaled).apply(anchor.state_dict())
    options = MatchOptions(spaces=("attention",), rescale="off")
    rotated = match_weights(source, anchor.state_dict(), description, options).apply(source)
    assert distance(rotated, anchor.state_dict()) > 0.05 * norm(source)
    found = match_weights(source, anchor.state_dict(), description, replace(options, rescale=rescale))
    assert distance(found.apply(source), anchor.state_dict()) < 1e-7 * norm(source)


@pytest.mark.parametrize("roles", [("attention", "ffn"), ("heads", "attention", "ffn")])
@pytest.mark.parametrize("name", CASES)
def test_no_nearby_or_swapped_alignment_is_better(name, roles):
    """Planted and blurred by noise: every small rotation and every exchange of two units or heads loses."""
    anchor, _, description = pair(name)
    source = noisy(
        rigid(description, seed=3, names=UNCOUPLED[("heads" not in roles) :]).apply(anchor.state_dict()), 0.1
    )
    goal = anchor.state_dict()
    found = match_weights(source, goal, description, MatchOptions(spaces=roles, rescale="off"))
    matched = found.apply(source)
    best = distance(matched, goal)
    assert best < 0.12 * norm(goal)
    draw = generator(6)
    for space in (s for s in description.spaces.values() if s.name in found.elements):
        for _ in range(3):
            rival = Alignment(description, {space.name: _nudge(space, draw)})
            assert distance(rival.apply(matched), goal) > best, space.name


def _nudge(space, draw: torch.Generator) -> Tensor:
    """An element next to the identity: two units exchanged, or a small rotation of every copy."""
    identity = space.group.identity(space.copies)
    if isinstance(space.group, Permutation):
        i, j = torch.randperm(space.group.size, generator=draw)[:2]
        identity[i], identity[j] = identity[j].clone(), identity[i].clone()
        return identity
    skew = 0.05 * torch.randn(identity.shape, generator=draw, dtype=torch.float64)
    return torch.linalg.matrix_exp(skew - skew.mT)


# The paper's formulas


def head_rows(state: State, name: str, layer: int = 0) -> Tensor:
    """One projection's weight with its bias as a further column, shape ``(heads, head_dim, hidden + 1)``."""
    at = f"bert.encoder.layer.{layer}.attention"
    if name == "output":
        return state[f"{at}.output.dense.weight"].T.unflatten(0, (HEADS, HEAD_DIM))
    weight, bias = state[f"{at}.self.{name}.weight"], state[f"{at}.self.{name}.bias"]
    return torch.cat([weight, bias[:, None]], 1).unflatten(0, (HEADS, HEAD_DIM))


def test_rotation_is_the_papers_algorithm_1():
    """R = U V^T of W_Q1 W_Q2^T + b_Q1 b_Q2^T + W_K1 W_K2^T + b_K1 b_K2^T; then W <- R^T W and b <- b R."""
    source, anchor, description = pair()
    first, second = source.state_dict(), anchor.state_dict()
    found = match_weights(first, second, description, MatchOptions(spaces=("attention",), rescale="off"))
    twin = found.apply(first)
    at = "bert.encoder.layer.0.attention"
    for head in range(HEADS):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)

        def term(name: str, rows: slice = rows) -> Tensor:
            w1, w2 = (s[f"{at}.self.{name}.weight"][rows] for s in (first, second))
            b1, b2 = (s[f"{at}.self.{name}.bias"][rows] for s in (first, second))
            return w1 @ w2.T + b1[:, None] @ b2[None]

        u, _, vh = torch.linalg.svd(term("query") + term("key"))
        r = u @ vh
        for name in ("query", "key"):
            weight, bias = f"{at}.self.{name}.weight", f"{at}.self.{name}.bias"
            torch.testing.assert_close(twin[weight][rows], r.T @ first[weight][rows])
            torch.testing.assert_close(twin[bias][rows], first[bias][rows] @ r)
        out = f"{at}.output.dense.weight"
        u, _, vh = torch.linalg.svd(term("value") + first[out][:, rows].T @ second[out][:, rows])
        r = u @ vh
        torch.testing.assert_close(twin[out][:, rows], first[out][:, rows] @ r)
        value = f"{at}.self.value.weight"
        torch.testing.assert_close(twin[value][rows], r.T @ first[value][rows])


def test_biases_decide_where_weights_do_not():
    """Weights that leave most rotations tied: what the biases say recovers the model, weights alone do not."""
    anchor, _, description = pair()
    goal = dict(anchor.state_dict())
    at = "bert.encoder.layer.0.attention.self"
    shared = [f"{at}.query.weight", f"{at}.key.weight"]
    for name in shared:
        # All but two directions of every head are empty, except for the bias.
        kept = goal[name].clone().unflatten(0, (HEADS, HEAD_DIM))
        kept[:, 2:] = 0
        goal[name] = kept.flatten(0, 1)
    planted = rigid(description, seed=3, names=("attention.qk",))
    planted = Alignment(description, {"layers.0.qk": planted.elements["layers.0.qk"]})
    source = planted.apply(goal)
    options = MatchOptions(spaces=("attention.qk",), layers="0", rescale="off")
    with_biases = match_weights(source, goal, description, options).apply(source)
    blind = {n: torch.zeros_like(x) if n.startswith(at) and n.endswith("bias") else x for n, x in source.items()}
    without_biases = match_weights(blind, goal, description, options).apply(source)
    names = [*shared, f"{at}.query.bias", f"{at}.key.bias"]
    assert distance({n: without_biases[n] for n in shared}, {n: goal[n] for n in shared}) < 1e-10
    assert squared_distance(without_biases, goal, names) > 0.1
    assert squared_distance(with_biases, goal, names) < 1e-20


# Heads


def permuted_and_rotated(first: State, second: State, order: tuple[int, ...]) -> float:
    """What is gained by sending head order[i] to place i and rotating each best: summed nuclear norms."""
    total = 0.0
    for here, there in enumerate(order):
        for one, other in (("query", "key"), ("value", "output")):
            sides = [head_rows(second, n)[here] @ head_rows(first, n)[there].T for n in (one, other)]
            total += float(torch.linalg.matrix_norm(sides[0] + sides[1], "nuc"))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_heads_and_their_rotations_are_the_joint_optimum(seed):
    """Against every one of the H! permutations, with Procrustes inside each."""
    first, second = (random_model(NAME, seed=s).state_dict() for s in (10 + seed, 20 + seed))
    description = blueprint(random_model(NAME))
    options = MatchOptions(spaces=("heads", "attention"), layers="0", rescale="off")
    found = match_weights(first, second, description, options)
    before, after = squared_distance(first, second), squared_distance(found.apply(first), second)
    gains = {order: permuted_and_rotated(first, second, order) for order in itertools.permutations(range(HEADS))}
    best = max(gains, key=lambda order: gains[order])
    unmoved = sum(
        float((head_rows(first, n) * head_rows(second, n)).sum()) for n in ("query", "key", "value", "output")
    )
    assert before - after == pytest.approx(2 * (gains[best] - unmoved), rel=1e-9)
    assert tuple(found.element("layers.0.heads").tolist()) == best


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("roles", [("heads",), ("heads", "attention.qk"), ("heads", "attention.vo")])
def test_heads_with_some_or_no_rotations_are_the_best_permutation(seed, roles):
    """Each of the H! permutations is applied, what may rotate is rotated, and none ends up closer."""
    first, second = (random_model(NAME, seed=s).state_dict() for s in (30 + seed, 40 + seed))
    description = blueprint(random_model(NAME))
    options = MatchOptions(spaces=roles, layers="1", rescale="joint")
    found = match_weights(first, second, description, options).apply(first)
    inner = MatchOptions(spaces=roles[1:], layers="1", rescale="joint")
    rivals = []
    for order in itertools.permutations(range(HEADS)):
        moved = Alignment(description, {"layers.1.heads": torch.tensor(order)}).apply(first)
        rivals.append(distance(match_weights(moved, second, description, inner).apply(moved), second))
    assert distance(found, second) == pytest.approx(min(rivals), rel=1e-9)


# Coupled spaces


@pytest.mark.parametrize("rescale", RESCALES)
@pytest.mark.parametrize("name", ["bert-sequence", "roberta-token", "vit-classifier", "timm-distilled"])
def test_more_sweeps_never_move_away(name, rescale):
    """The residual stream couples all spaces: the distance falls from sweep to sweep, until nothing changes."""
    anchor, _, description = pair(name)
    goal = anchor.state_dict()
    worth_repeating = False
    for seed in (4, 5, 6):
        # Layers that are alike under embeddings and heads that hardly are: what the first pass starts from misleads.
        alike, apart = noisy(goal, 0.5, seed=seed), noisy(goal, 4.0, seed=seed)
        mixed = {key: (alike if re.search(r"(layer|layers|blocks)\.\d", key) else apart)[key] for key in goal}
        source = rigid(description, seed=seed).apply(mixed)
        distances = [distance(source, goal)]
        for sweeps in (1, 2, 3, 4, 5, 50):
            options = MatchOptions(spaces=("all",), rescale=rescale, sweeps=sweeps)
            twin = match_weights(source, goal, description, options).apply(source)
            distances.append(distance(twin, goal))
        assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(distances))
        worth_repeating |= distances[2] < (1 - 1e-4) * distances[1]
        final = match_weights(twin, goal, description, options).apply(twin)
        assert distance(final, goal) == pytest.approx(distances[-1], rel=1e-6)
    assert worth_repeating, "a second sweep must matter for some start, or this test shows nothing"


def test_noise_on_a_planted_alignment_of_all_spaces_is_undone():
    """Near pair, everything moved at once but the residual stream: only the noise is left."""
    anchor, _, description = pair()
    goal = anchor.state_dict()
    source = noisy(rigid(description, seed=3, names=UNCOUPLED).apply(goal), 0.1)
    found = match_weights(source, goal, description, MatchOptions(spaces=("all",), rescale="off")).apply(source)
    assert distance(found, goal) < 0.12 * norm(goal)


# Options


@pytest.mark.parametrize("name", ["bert-sequence", "vit-classifier", "timm-plain"])
def test_layers_that_are_not_chosen_stay_to_the_bit(name):
    source, anchor, description = pair(name)
    options = MatchOptions(spaces=("heads", "attention", "ffn"), layers="1", rescale="joint")
    before = source.state_dict()
    after = match_weights(before, anchor.state_dict(), description, options).apply(before)
    changed = {key for key in before if not torch.equal(after[key], before[key])}
    in_layer = set(description.touching(s for s in description.spaces if s.startswith("layers.1.")))
    assert changed == in_layer
    assert all("1." in key for key in changed)


def test_nothing_selected_changes_nothing():
    source, anchor, description = pair()
    alignment = match_weights(source.state_dict(), anchor.state_dict(), description, preset("none"))
    assert alignment.elements == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_models_are_matched_in_float32(dtype):
    """The same elements as for the same numbers in float32, and the twin keeps the type."""
    source, anchor, description = pair()
    narrow = [{key: x.to(dtype) for key, x in model.state_dict().items()} for model in (source, anchor)]
    wide = [{key: x.float() for key, x in state.items()} for state in narrow]
    for options in (preset("paper"), MatchOptions(spaces=("all",), sweeps=2, rescale="joint")):
        found = match_weights(*narrow, description, options)
        expected = match_weights(*wide, description, options)
        assert found.elements.keys() == expected.elements.keys()
        assert all(torch.equal(found.elements[s], e) for s, e in expected.elements.items())
    twin = found.apply(narrow[0])
    assert {x.dtype for x in twin.values()} == {dtype}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("with_bfloat16", [True, False])
def test_float32_finds_the_float64_assignment(with_bfloat16, monkeypatch):
    """Whether products are rounded to bfloat16 first or not, near and independent models are matched as well."""
    monkeypatch.setattr("fusionlab.matching.weights._fast_bfloat16", lambda _: with_bfloat16)
    source, anchor, description = pair()
    goal = anchor.state_dict()
    near = noisy(rigid(description, seed=3, names=("ffn",)).apply(goal), 0.1)
    for first in (source.state_dict(), near):
        exact = match_weights(first, goal, description, MatchOptions(spaces=("ffn",)))
        narrow = [{key: x.float() for key, x in state.items()} for state in (first, goal)]
        found = match_weights(*narrow, description, MatchOptions(spaces=("ffn",)))
        assert all(torch.equal(found.element(s), exact.element(s)) for s in description.spaces)


def test_without_lap_the_distance_is_the_same(monkeypatch):
    source, anchor, description = pair()
    states = source.state_dict(), anchor.state_dict()
    options = MatchOptions(spaces=("all",), sweeps=3)
    with_lap = distance(match_weights(*states, description, options).apply(states[0]), states[1])
    monkeypatch.setattr(assigning, "lap", None)
    without = distance(match_weights(*states, description, options).apply(states[0]), states[1])
    assert without == pytest.approx(with_lap, rel=1e-6)


@pytest.mark.usefixtures("two_threads")
def test_matching_is_reproducible_and_leaves_its_inputs_alone():
    source, anchor, description = pair()
    states = source.state_dict(), anchor.state_dict()
    before = [{key: x.clone() for key, x in state.items()} for state in states]
    options = MatchOptions(spaces=("all",), rescale="joint", sweeps=3)
    first, again = (match_weights(*states, description, options) for _ in range(2))
    assert first.elements.keys() == again.elements.keys()
    assert all(torch.equal(first.elements[s], again.elements[s]) for s in first.elements)
    for state, kept in zip(states, before, strict=True):
        assert all(torch.equal(state[key], kept[key]) for key in kept)


def test_dead_head_does_not_spoil_the_model():
    """A head whose keys are zero, biases too: finite elements, the same function, no further away."""
    source, anchor, description = pair()
    first = dict(source.state_dict())
    for part in ("weight", "bias"):
        name = f"bert.encoder.layer.0.attention.self.key.{part}"
        first[name] = first[name].clone()
        first[name][:HEAD_DIM] = 0
    source.load_state_dict(first)
    for rescale in RESCALES:
        found = match_weights(
            first, anchor.state_dict(), description, MatchOptions(("all",), rescale=rescale, sweeps=3)
        )
        assert all(bool(torch.isfinite(e).all()) for e in found.elements.values())
        assert relative(outputs(found.apply(source)), outputs(source)) < 1e-9
        assert distance(found.apply(first), anchor.state_dict()) < distance(first, anchor.state_dict())


def test_result_does_not_depend_on_where_the_source_stands():
    """An uncoupled optimum is one for the whole orbit: a re-based source is brought to the same place."""
    source, anchor, description = pair()
    goal = anchor.state_dict()
    options = MatchOptions(spaces=("heads", "attention", "ffn"), rescale="joint")
    moved = rigid(description, seed=9, names=UNCOUPLED).apply(source.state_dict())
    here = match_weights(source.state_dict(), goal, description, options).apply(source.state_dict())
    there = match_weights(moved, goal, description, options).apply(moved)
    assert distance(here, there) < 1e-6 * norm(here)


def test_squared_distance_is_summed_in_float64():
    ones = {"a": torch.full((10,), 1e-4), "b": torch.zeros(3, dtype=torch.bfloat16)}
    zeros = {"a": torch.zeros(10), "b": torch.full((3,), 2.0)}
    assert squared_distance(ones, zeros) == pytest.approx(12 + 1e-7, rel=1e-9)
    assert squared_distance(ones, zeros, ["b"]) == 12


def test_random_alignment_is_no_optimum():
    """The distance does depend on the basis: a random one is further away than what matching finds."""
    source, anchor, description = pair()
    found = match_weights(source.state_dict(), anchor.state_dict(), description, preset("paper"))
    matched = distance(found.apply(source.state_dict()), anchor.state_dict())
    for seed in range(3):
        elsewhere = moving_all(description, seed).apply(source.state_dict())
        assert distance(elsewhere, anchor.state_dict()) > matched
