"""Weight matching: never further away, never another function, and its options do what they say."""

import copy

import pytest
import torch

from fusionlab.matching import assignment as assigning
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import match_weights, squared_distance
from tests.matching.pairs import RESCALES, distance, noisy, norm, pair
from tests.symmetry.models import CASES, HEAD_DIM, outputs, relative, rigid

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


@pytest.fixture
def two_threads() -> None:
    """Solvers run beside products, as on any real machine; the package's own fixture restores the number."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", CASES)
def test_matching_never_moves_away_and_never_changes_the_function(name):
    """Any spaces, layers and rescaling, by turns, for independent models: distance falls or stays, outputs stay."""
    source, anchor, description = pair(name)
    expected, before = outputs(source), distance(source.state_dict(), anchor.state_dict())
    twin, turn = copy.deepcopy(source), list(CASES).index(name)
    for place, spaces in enumerate(SPACES, start=turn):
        layers, rescale = ("all", "0", "last:1")[place % 3], RESCALES[turn % 3]
        if "residual" in spaces and "residual" not in description.spaces:
            continue
        options = MatchOptions(spaces=spaces, layers=layers, rescale=rescale, sweeps=2)
        alignment = match_weights(source.state_dict(), anchor.state_dict(), description, options)
        twin.load_state_dict(alignment.apply(source.state_dict()))
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


# Options


@pytest.mark.parametrize("name", ["bert-sequence", "vit-classifier", "timm-plain"])
def test_layers_that_are_not_chosen_stay_to_the_bit(name):
    source, anchor, description = pair(name)
    options = MatchOptions(spaces=("heads", "attention", "ffn"), layers="1", rescale="joint")
    before = source.state_dict()
    after = match_weights(before, anchor.state_dict(), description, options).apply(before)
    changed = {key for key in before if not torch.equal(after[key], before[key])}
    in_layer = set(description.touching(s for s in description.spaces if s.startswith("layers.1.")))
    # Spaces of no layer are matched whatever is chosen: a pooler has units of its own.
    in_none = set(
        description.touching(s.name for s in description.spaces.values() if s.role == "ffn" and s.layer is None)
    )
    assert changed == in_layer | in_none
    assert all("1." in key for key in changed - in_none)


def test_nothing_selected_changes_nothing():
    source, anchor, description = pair()
    alignment = match_weights(source.state_dict(), anchor.state_dict(), description, preset("none"))
    assert alignment.elements == {}


# Numbers


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
    monkeypatch.setattr("fusionlab.matching.hidden_units._fast_bfloat16", lambda _: with_bfloat16)
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


def test_squared_distance_is_summed_in_float64():
    ones = {"a": torch.full((10,), 1e-4), "b": torch.zeros(3, dtype=torch.bfloat16)}
    zeros = {"a": torch.zeros(10), "b": torch.full((3,), 2.0)}
    assert squared_distance(ones, zeros) == pytest.approx(12 + 1e-7, rel=1e-9)
    assert squared_distance(ones, zeros, ["b"]) == 12
