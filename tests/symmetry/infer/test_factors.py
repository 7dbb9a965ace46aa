"""Several sets of factors along one space: one for each gain of a stream that cannot be folded."""

import itertools
import random
from fractions import Fraction

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fusionlab.matching.align import align_states
from fusionlab.matching.gauge import balance
from fusionlab.matching.options import ALL, MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import squared_distance, squared_length
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.axes import Along, Fixed, Per, Scaled
from fusionlab.symmetry.evidence import Outcome
from fusionlab.symmetry.groups import Permutation, Scale, Signs
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.dims import Variable
from fusionlab.symmetry.infer.found import Action, Found, drop_contained
from fusionlab.symmetry.infer.solutions import apart
from fusionlab.symmetry.infer.trace import generic
from fusionlab.symmetry.plain import dumps, loads
from fusionlab.symmetry.roles import Role
from tests.symmetry.infer.networks.demand import places_of
from tests.symmetry.models import laws, randomize


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 7), nn.Linear(7, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.down(torch.tanh(self.up(self.norm(x))))


class Tied(nn.Module):
    """Blocks beside a stream whose table reads it too, so that no gain can be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.table.weight.T


IDS = {"ids": torch.randint(9, (3, 4), generator=torch.Generator().manual_seed(3))}


def described() -> Blueprint:
    return infer(Tied(), IDS, "tied")


def test_each_gain_has_factors_against_what_reads_or_writes_it() -> None:
    """Named by the gain; the last norm has none, since its reader writes the stream. Writers and gains are primal."""
    found = described()
    factors = {name: space for name, space in found.spaces.items() if space.role == Role.RESIDUAL_SCALE}
    assert {(space.group, space.index) for space in factors.values()} == {(Scale(1, signed=True), ("residual",))}
    at = {name: places_of(found, name) for name in factors}
    for i in range(2):
        norm, scale = (f"residual.layers.{i}.{name}.scale" for name in ("norm", "scale"))
        block = f"blocks.{i}"
        assert at.pop(norm) == {(f"{block}.norm.weight", 0), (f"{block}.norm.bias", 0), (f"{block}.up.weight", 1)}
        assert at.pop(scale) == {(f"{block}.scale", 0), (f"{block}.down.weight", 0), (f"{block}.down.bias", 0)}
        assert [t.outcome for t in found.trials[norm] if t.group == Scale(1, signed=True)] == [Outcome.TAKEN]
    assert at == {}
    assert loads(dumps(found)) == found


def test_a_twin_with_stretched_gains_is_found_again() -> None:
    """By the preset, whose gauge makes gains one: element for element random, signs and factors of streams included."""
    found = described()
    state = {name: generic(x, torch.Generator().manual_seed(11)) for name, x in Tied().double().state_dict().items()}
    twin = Alignment.random(found, torch.Generator().manual_seed(7)).apply(state)
    alignments = align_states([twin, state], found, preset("weights"), anchor=1)
    back, goal = (alignment.apply(s) for alignment, s in zip(alignments, (twin, state), strict=True))
    assert squared_distance(twin, state) > 0.05 * squared_length(state)
    assert squared_distance(back, goal) < 1e-20 * squared_length(goal)


def test_a_factor_that_does_not_hold_is_left_out_alone() -> None:
    """Of a network that computes with one gain twice, the other factors stay."""

    class Seen(Tied):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids) * self.blocks[0].norm.weight.square().sum()

    names = {name for name, space in infer(Seen(), IDS, "seen").spaces.items() if space.role == Role.RESIDUAL_SCALE}
    whole = {name for name, space in described().spaces.items() if space.role == Role.RESIDUAL_SCALE}
    assert whole - names == {"residual.layers.0.norm.scale"}
    assert names <= whole


@laws
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 2**31))
def test_solutions_apart_from_all_others_do_not_depend_on_the_order(sizes: list[int], seed: int) -> None:
    """One for each part, and of three that share stretches one with the two."""
    stretches = [("x", 0, i) for i in range(sum(sizes) + 3)]
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = [stretches[start:end] for start, end in itertools.pairwise(ends)]
    wanted = [{s: Fraction(1 - 2 * (i % 2)) for i, s in enumerate(part)} for part in parts]
    gate, values, down = stretches[-3:]
    solutions = [*wanted, {gate: Fraction(1), down: Fraction(-1)}, {values: Fraction(1), down: Fraction(-1)}]
    random.Random(seed).shuffle(solutions)
    found = list(apart(solutions))
    assert [one for one in found if down not in one and gate not in one] == [
        {s: int(power) for s, power in one.items()} for one in solutions if one in wanted
    ]
    assert all(len(one) == 2 for one in found if down in one)


def test_what_finer_factors_hold_is_no_factor_of_whole_blocks() -> None:
    """A factor of each head on gains that have one for each feature of each head; other parameters keep theirs."""
    heads, features = Variable(3), Variable(4)
    gains, others = ("gain", 0, 0), ("other", 0, 0)
    one = Found(heads, (gains, others), permutation=Action(Permutation(3), {gains: 1}, ()))
    one.factors = [Action(Scale(1, signed=True), {at: 1}, ()) for at in (gains, others)]
    one.signs = Action(Signs(1), {others: 1}, ())
    finer = Found(features, (("gain", 0, 1),), basis=Action(Scale(4, signed=True), {("gain", 0, 1): 1}, (heads,)))
    drop_contained([one, finer])
    assert [set(action.powers) for action in one.factors] == [{others}]
    assert (one.signs, finer.basis) != (None, None)


class Regular(nn.Module):
    """Gated units of a ReLU: ``down(relu(gate) * values)``."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.values, self.down = nn.Linear(5, 7), nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.gate(x)) * self.values(x))


class Power(nn.Module):
    """Units whose ReLU is taken to a power."""

    def __init__(self, power: int) -> None:
        super().__init__()
        self.up, self.down, self.power = nn.Linear(5, 7), nn.Linear(7, 3), power

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)) ** self.power)


class Heads(nn.Module):
    """Attention with a gain for each head, on what the heads give or on their scores."""

    def __init__(self, on_scores: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(5, 12) for _ in range(3))
        self.o, self.gain, self.on_scores = nn.Linear(12, 4), nn.Parameter(torch.ones(3)), on_scores

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one(x).unflatten(-1, (3, 4)).transpose(-2, -3) for one in (self.q, self.k, self.v))
        scores = q @ k.mT * (self.gain[:, None, None] if self.on_scores else 1)
        found = (scores.softmax(-1) @ v).transpose(-2, -3) * (1 if self.on_scores else self.gain[:, None])
        return self.o(found.flatten(-2))


class Beside(nn.Module):
    """A gain beside a second one of the same: what either takes up the other does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(7)), nn.Parameter(torch.ones(7))
        self.up, self.down = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x)) * self.first * self.second)


OWN = {
    "relu and gate": (Regular, 14, {"ffn.values.scale": Scale(1, signed=True), "ffn.gate.scale": Scale(1)}),
    "square": (lambda: Power(2), 7, {"ffn.scale": Scale(1)}),
    "cube": (lambda: Power(3), 7, {"ffn.scale": Scale(1)}),
    "gains of heads": (lambda: Heads(False), 2 * 3 * 16 + 3, {"heads.scale": Scale(1, signed=True)}),
    "gains of scores": (lambda: Heads(True), 2 * 3 * 16 + 3, {"heads.scale": Scale(1, signed=True)}),
    "two gains": (Beside, 14, {f"ffn.{name}.scale": Scale(1, signed=True) for name in ("first", "second")}),
}
own = pytest.mark.parametrize("name", OWN)


def own_model(name: str) -> tuple[nn.Module, Blueprint]:
    model = OWN[name][0]().double()
    state = {n: generic(x, torch.Generator().manual_seed(11)) for n, x in model.state_dict().items()}
    model.load_state_dict(state)
    return model, infer(model, GIVEN, name)


GIVEN = {"x": torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(3))}


@own
def test_own_modules_have_all_their_factors_and_no_others(name: str) -> None:
    """The dimension of the group is that of all solutions: none is claimed twice."""
    _, found = own_model(name)
    factors = {space.name: space.group for space in found.spaces.values() if space.group.is_factor}
    assert factors == OWN[name][2]
    assert found.dimension == OWN[name][1]
    assert loads(dumps(found)) == found


@own
def test_a_twin_of_an_own_module_is_the_same_function_and_found_again(name: str) -> None:
    model, found = own_model(name)
    alignment = Alignment.random(found, torch.Generator().manual_seed(7))
    twin, x = alignment.apply(model), GIVEN["x"].double()
    torch.testing.assert_close(twin(x), model(x), rtol=1e-11, atol=1e-11)
    states = [twin.state_dict(), model.state_dict()]
    undone = alignment.inverse().apply(states[0])
    assert squared_distance(undone, states[1]) < 1e-24 * squared_length(states[1])
    for start in ("annealed", "known"):
        options = MatchOptions(spaces=(ALL,), rescale="off", gauge=("balanced",), start=start)
        back, goal = (a.apply(s) for a, s in zip(align_states(states, found, options, anchor=1), states, strict=True))
        assert squared_distance(back, goal) < 1e-18 * squared_length(goal)
    assert squared_distance(*states) > 0.05 * squared_length(states[1])


def test_what_a_square_is_read_by_takes_the_inverse_of_the_square() -> None:
    _, found = own_model("square")
    assert found.parameters["up.weight"][0] == Per("ffn", 7, Along("ffn.scale", 1))
    assert found.parameters["down.weight"][1] == Per("ffn", 7, Scaled("ffn.scale", -2, Fixed(1)))


def test_a_gain_of_heads_lies_around_their_basis() -> None:
    _, found = own_model("gains of heads")
    assert found.parameters["o.weight"][1] == Per("heads", 3, Scaled("heads.scale", -1, Along("vo", 4, is_dual=True)))


def tied(name: str) -> nn.Module:
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    kind = getattr(transformers, f"{name}Config")
    further = {} if name in ("Llama", "Qwen2") else {"head_dim": 6}
    config = kind(**sizes, intermediate_size=20, vocab_size=50, tie_word_embeddings=True, **further)
    return randomize(getattr(transformers, f"{name}ForCausalLM")(config), 0)


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3"])
def test_gains_of_a_tied_stream_with_signs_have_factors(name: str) -> None:
    """What reads a gain takes its factor beside the stream's signs; in the balanced gauge all gains are one."""
    model = tied(name)
    found = blueprint(model)
    scales = [space for space in found.spaces.values() if space.role == Role.RESIDUAL_SCALE]
    names = [f"residual.layers.{i}.{n}_layernorm.scale" for i in range(2) for n in ("input", "post_attention")]
    assert [space.name for space in scales] == names
    assert {(space.group, space.index) for space in scales} == {(Scale(1, signed=True), ("residual",))}
    reader = found.parameters["model.layers.1.mlp.up_proj.weight"][1]
    assert reader == Per("residual", 24, Scaled(names[3], -1, Along("residual.signs", 1, is_dual=True)))
    twin = Alignment.random(found, torch.Generator().manual_seed(7)).apply(model)
    ids = {"input_ids": torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(3))}
    torch.testing.assert_close(twin(**ids).logits, model(**ids).logits, rtol=0, atol=1e-5)
    states = [twin.state_dict(), model.state_dict()]
    in_gauge = balance(states[0], found).apply(states[0])
    for i in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            gain = in_gauge[f"model.layers.{i}.{norm}.weight"]
            torch.testing.assert_close(gain.abs(), torch.ones_like(gain), rtol=0, atol=1e-6)
    back, goal = (
        a.apply(s) for a, s in zip(align_states(states, found, preset("weights"), anchor=1), states, strict=True)
    )
    assert squared_distance(back, goal) < 1e-10 * squared_length(goal)


def test_a_gain_that_is_stored_as_its_difference_from_one_has_no_factor() -> None:
    """Gemma multiplies by one more than its parameter, which no factor of that goes through."""
    found = blueprint(tied("Gemma"))
    assert not [space for space in found.spaces.values() if space.role == Role.RESIDUAL_SCALE]
    assert found.spaces["residual.signs"].group == Signs(1)
