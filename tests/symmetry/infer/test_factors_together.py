"""Factors that share stretches with others, act by other powers, or lie around the bases of heads."""

from collections.abc import Mapping

import pytest
import torch
import transformers
from torch import Tensor, nn

from fusionlab.matching.align import align_states
from fusionlab.matching.gauge import balance
from fusionlab.matching.groups import geometry
from fusionlab.matching.options import ALL, MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import squared_distance, squared_length
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.axes import Along, Fixed, Per, Scaled
from fusionlab.symmetry.groups import Scale, Signs
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.trace import Plain, generic
from fusionlab.symmetry.plain import dumps, loads
from fusionlab.symmetry.roles import Role
from tests.parts import long, one_in
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.infer.described import built, inferred
from tests.symmetry.models import randomize


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


@pytest.mark.parametrize("name", one_in(2, ["Llama", "Qwen2", "Qwen3"]))
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


def check_ranks(found: Blueprint, state: Mapping[str, Tensor]) -> None:
    """Every coordinate of every continuous group moves the parameters in a direction of its own."""
    rows, step = [], 1e-5
    for space in found.spaces.values():
        chart = geometry(space.group)
        count = chart.coordinates(general=True)
        for place in range(space.count * count):
            at = torch.zeros(space.count * count, dtype=torch.float64)
            at[place] = step
            ends = [chart.chart(x.reshape(*space.copies, count), general=True) for x in (at, -at)]
            touched = found.touching([space.name])
            moved = [
                torch.cat([Alignment(found, {space.name: end}).apply_to(n, state[n]).flatten() for n in touched])
                for end in ends
            ]
            change = ((moved[0] - moved[1]) / (2 * step)).split([state[n].numel() for n in touched])
            parts = dict(zip(touched, change, strict=True))
            rows.append(torch.cat([parts.get(n, torch.zeros(x.numel(), dtype=x.dtype)) for n, x in state.items()]))
    directions = torch.stack(rows)
    assert int(torch.linalg.matrix_rank(directions @ directions.mT, rtol=1e-9)) == len(rows)


@own
def test_no_dimension_of_an_own_module_is_claimed_twice(name: str) -> None:
    model, found = own_model(name)
    check_ranks(found, model.state_dict())


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_no_dimension_of_a_tied_model_is_claimed_twice(name: str) -> None:
    model = tied(name)
    check_ranks(blueprint(model), dict(model.named_parameters()) | {"lm_head.weight": model.lm_head.weight})


@pytest.mark.parametrize("name", ["convbert", pytest.param("cohere (norms of queries and keys)", marks=long)])
def test_no_dimension_of_a_sample_is_claimed_twice(name: str) -> None:
    """ConvBERT's heads share one basis of values, which holds the factor that they all share."""
    (sample,) = (sample for sample in SAMPLES if sample.name == name)
    draw = torch.Generator().manual_seed(11)
    check_ranks(inferred(sample), {n: generic(x, draw) for n, x in Plain(built(sample)).state.items()})
