"""Experts are matched together with their units: on real classes, against every permutation of experts there is."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from transformers import DeepseekV3ForCausalLM, GptOssForCausalLM, MixtralForCausalLM

from fusionlab.matching import nested
from fusionlab.matching.align import align_states
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import match_weights, squared_distance, squared_length
from fusionlab.symmetry import Alignment, Blueprint, Space, blueprint
from fusionlab.symmetry.axes import Across
from fusionlab.symmetry.groups import Permutation, Scale
from fusionlab.symmetry.roles import Role
from tests.parts import one_in
from tests.symmetry.infer.cases.experts import LATENT, SAMPLES, TEXT
from tests.symmetry.models import generator
from tests.symmetry.scramble import scrambled

BY_NAME = {sample.name: sample for sample in SAMPLES}
# One with groups of experts, one whose units have no factors and biases instead, three that store them either way.
NAMES = ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "olmoe", "llama4", "gemma4 (experts)")
INSIDE = MatchOptions(spaces=("experts", "ffn"), rescale="off")


def model(name: str, seed: int) -> nn.Module:
    built = BY_NAME[name].build().double()
    built.load_state_dict(randomised(built, seed))
    return built


def randomised(built: nn.Module, seed: int) -> dict[str, Tensor]:
    draw = generator(seed)
    return {n: torch.randn(x.shape, generator=draw, dtype=torch.float64) for n, x in built.state_dict().items()}


def of_experts(description: Blueprint) -> Iterator[Space]:
    """Experts, groups of them, and what is inside."""
    experts = {name for name, space in description.spaces.items() if space.role == Role.EXPERTS}
    yield from (space for name, space in description.spaces.items() if experts.intersection((name, *space.index)))


def planted(description: Blueprint, seed: int) -> Alignment:
    """Random orders of experts and units, and a sign for each unit where it has a factor."""
    spaces = [space for space in of_experts(description) if isinstance(space.group, Permutation | Scale)]
    drawn = {space.name: space.group.random(space.copies, generator(seed)) for space in spaces}
    return Alignment(description, {name: x.sign() if x.is_floating_point() else x for name, x in drawn.items()})


def say_nothing_of_experts(state: dict[str, Tensor], description: Blueprint) -> dict[str, Tensor]:
    """The same with all experts alike in what is not inside of them: routers, their biases, corrections."""
    every = list(of_experts(description))
    experts = [space.name for space in every if space.role == Role.EXPERTS]
    inside = description.touching(space.name for space in every if space.role != Role.EXPERTS)
    routers = description.touching(experts).keys() - inside.keys()
    assert routers
    return state | {name: state[name].mean(0, keepdim=True).expand_as(state[name]).clone() for name in routers}


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_experts_and_units_are_found_in_one_pass_where_the_router_says_nothing(name: str) -> None:
    """Raw weights of experts in another order of units have nothing in common, so one after the other fails here."""
    anchor = model(name, 0)
    description = blueprint(anchor)
    goal = say_nothing_of_experts(anchor.state_dict(), description)
    source = planted(description, 3).apply(goal)
    assert squared_distance(source, goal) > 0.1 * squared_length(goal)
    once = MatchOptions(spaces=INSIDE.spaces, rescale="off", sweeps=1)
    found = match_weights(source, goal, description, once)
    assert squared_distance(found.apply(source), goal) == 0


@pytest.mark.parametrize(
    ("name", "objective"), [("mixtral", "inner"), ("deepseek_v3", "euclidean"), ("mixtral", "cosine")]
)
def test_permutations_alone_find_them_too(name: str, objective: str) -> None:
    """Git Re-Basin and OT fusion; signs are no permutations, so none are planted."""
    anchor = model(name, 0)
    description = blueprint(anchor)
    goal = say_nothing_of_experts(anchor.state_dict(), description)
    elements = planted(description, 3).elements
    orders = {space: x for space, x in elements.items() if not x.is_floating_point()}
    source = Alignment(description, orders).apply(goal)
    options = PermutationOptions(spaces=INSIDE.spaces, sweeps=1, objective=objective)
    found = match_permutations(source, goal, description, options)
    assert squared_distance(found.apply(source), goal) == 0


@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3", "gpt_oss"])
def test_a_twin_in_another_basis_is_found_by_the_preset_where_the_router_says_nothing(name: str) -> None:
    """The stream rotated, heads and all the rest in another basis too."""
    anchor = model(name, 0)
    description, options = blueprint(anchor), preset("weights")
    goal = say_nothing_of_experts(anchor.state_dict(), description)
    states = [scrambled(goal, description, seed=4), goal]
    twins = [a.apply(s) for a, s in zip(align_states(states, description, options, anchor=1), states, strict=True)]
    assert squared_distance(*states) > 0.1 * squared_length(goal)
    assert squared_distance(*twins) < 1e-16 * squared_length(goal)


def small(name: str, **config: int) -> nn.Module:
    """Few experts, so that all their permutations can be tried."""
    kind = {"mixtral": MixtralForCausalLM, "deepseek_v3": DeepseekV3ForCausalLM, "gpt_oss": GptOssForCausalLM}[name]
    return kind(kind.config_class(**TEXT | config))


FEW = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 5},
    "gpt_oss": {"num_local_experts": 3, "num_experts_per_tok": 2, "intermediate_size": 6, "head_dim": 6},
    "deepseek_v3": LATENT
    | {"q_lora_rank": 14, "n_routed_experts": 6, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
    | {"n_shared_experts": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 5},
}


def every_order(description: Blueprint, layer: int) -> Iterator[Alignment]:
    """All that experts and groups of them can be put into, in one layer."""
    spaces = [s for s in of_experts(description) if s.role == Role.EXPERTS and s.layer == layer]
    choices = [itertools.product(itertools.permutations(range(s.group.size)), repeat=s.count) for s in spaces]
    for orders in itertools.product(*choices):
        pairs = zip(spaces, orders, strict=True)
        yield Alignment(description, {s.name: torch.tensor(o).reshape(*s.copies, s.group.size) for s, o in pairs})


@pytest.mark.parametrize(
    ("name", "seed"), one_in(2, [("mixtral", 0), ("mixtral", 1), ("gpt_oss", 1), ("deepseek_v3", 2)])
)
def test_no_order_of_experts_is_better(name: str, seed: int) -> None:
    """Independent models: each order is applied, the units of every expert are assigned, and none ends up closer."""
    first, second = (small(name, **FEW[name]).double() for _ in range(2))
    description = blueprint(first)
    source, goal = (randomised(one, 10 * seed + index) for index, one in enumerate((first, second)))
    options = MatchOptions(spaces=INSIDE.spaces, rescale="off", layers="1")
    reached = squared_distance(match_weights(source, goal, description, options).apply(source), goal)
    rivals = [by_index(order.apply(source), goal, description) for order in every_order(description, layer=1)]
    assert len(rivals) == {"mixtral": 24, "gpt_oss": 6, "deepseek_v3": 72}[name]
    assert reached == pytest.approx(min(rivals), rel=1e-9)
    assert max(rivals) > min(rivals) * (1 + 1e-4)


def by_index(source: dict[str, Tensor], goal: dict[str, Tensor], description: Blueprint) -> float:
    """The squared distance where the units of every expert are assigned and experts stay where they are."""
    units = MatchOptions(spaces=("ffn",), rescale="off", layers="1")
    return squared_distance(match_weights(source, goal, description, units).apply(source), goal)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expert counts as too large for the gains of all pairs of units to be held."""
    monkeypatch.setattr(nested, "HELD_ENTRIES", 0)
    monkeypatch.setattr(nested, "SAMPLE", 3)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "deepseek_v3"])
def test_large_experts_are_found_by_a_sample_of_their_units(name: str) -> None:
    anchor = model(name, 0)
    description = blueprint(anchor)
    goal = say_nothing_of_experts(anchor.state_dict(), description)
    source = planted(description, 3).apply(goal)
    found = match_weights(source, goal, description, INSIDE)
    assert squared_distance(found.apply(source), goal) == 0


@pytest.mark.usefixtures("large")
def test_large_experts_end_no_further_away_than_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are near each other, and one round after a sample of a single unit, which misleads."""
    monkeypatch.setattr(nested, "SAMPLE", 1)
    monkeypatch.setattr(nested, "ROUNDS", 1)
    model = small("mixtral", **FEW["mixtral"] | {"num_local_experts": 12}).double()
    description = blueprint(model)
    options = MatchOptions(spaces=INSIDE.spaces, rescale="off", layers="1")
    for seed in range(10):
        goal, noise = (randomised(model, 100 * seed + index) for index in range(2))
        source = {name: x + 3 * noise[name] for name, x in goal.items()}
        reached = squared_distance(match_weights(source, goal, description, options).apply(source), goal)
        assert reached <= by_index(source, goal, description) * (1 + 1e-12)


@pytest.mark.parametrize("held", [True, False], ids=["bounds", "estimates"])
def test_inner_assignments_are_solved_only_where_the_outer_one_may_want_them(
    held: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each of experts that correspond to each other; a few for each of independent ones that are estimated."""
    if not held:
        request.getfixturevalue("large")
    solved = []
    solve = nested.improving_assignment
    monkeypatch.setattr(nested, "improving_assignment", lambda gains: solved.append(gains.shape) or solve(gains))
    count, units = 12, (10, 10)
    models = [small("mixtral", **FEW["mixtral"] | {"num_local_experts": count, "intermediate_size": 10}) for _ in "ab"]
    description = blueprint(models[0])
    goal, other = (randomised(one, seed) for seed, one in enumerate(models))
    options = MatchOptions(spaces=INSIDE.spaces, rescale="off", layers="1")
    source = planted(description, 3).apply(goal)
    match_weights(source, goal, description, options)
    assert solved.count(units) <= 2 * count
    solved.clear()
    match_weights(other, goal, description, options)
    assert count <= solved.count(units) <= (count**2 if held else (nested.ROUNDS + 1) * count)


def test_factors_of_experts_units_are_the_best_there_are() -> None:
    """Solved with the permutations; solving for them once more changes nothing."""
    first, second = model("mixtral", 0), model("mixtral", 1)
    description = blueprint(first)
    source, goal = first.state_dict(), second.state_dict()
    off, joint = (
        match_weights(source, goal, description, replace(INSIDE, rescale=rescale)).apply(source)
        for rescale in ("off", "joint")
    )
    assert squared_distance(joint, goal) < 0.999 * squared_distance(off, goal)
    again = match_weights(joint, goal, description, MatchOptions(spaces=("ffn.scale",), rescale="joint")).apply(joint)
    assert squared_distance(again, joint) < 1e-16 * squared_length(joint)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3"])
def test_equal_experts_stay_where_they_are(name: str, dtype: torch.dtype) -> None:
    """Two models upcycled from one dense model: experts are copies and routers equal, so any order is as good."""
    anchor = model(name, 0)
    description = blueprint(anchor)
    state = say_nothing_of_experts(anchor.state_dict(), description)
    fused = [n for n, axes in description.parameters.items() if any(isinstance(axis, Across) for axis in axes)]
    assert fused
    goal = state | {n: state[n][:1].expand_as(state[n]).clone() for n in fused}
    noise = randomised(anchor, 1)
    source, goal = ({n: (x + shift * noise[n].mean()).to(dtype) for n, x in goal.items()} for shift in (0.1, 0.0))
    for start in ("as-is", "known"):
        found = match_weights(source, goal, description, replace(INSIDE, start=start))
        for space in (s for s in of_experts(description) if isinstance(s.group, Permutation)):
            assert torch.equal(found.element(space.name), space.group.identity(space.copies)), space.name
