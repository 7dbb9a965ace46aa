"""Symmetries inferred for models that nobody described are exact, act, and are found again by matching."""

import os

import pytest
import torch

from fusionlab.symmetry import Alignment, SymmetryError
from fusionlab.symmetry.infer import examples, models
from fusionlab.symmetry.infer.trace import Plain, generic, in_float64
from fusionlab.symmetry.plain import dumps, loads
from fusionlab.symmetry.stacks import apart
from tests.parts import EVERY, one_in
from tests.symmetry.fields import every_field
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.infer.cases.sample import Sample
from tests.symmetry.infer.described import built, inferred
from tests.symmetry.infer.planted import distance_left, gauged, moved

EXACT = 1e-9
WANTED = ("mixtral", "deepseek_v3", "gpt_oss", "gemma3", "falcon (grouped queries)", "bloom", "phi", "roformer")
WANTED += ("mt5", "convnext", "resnet", "wav2vec2", "mamba", "dinov3_vit", "segformer", "own: convolutional")
WANTED += ("diffusers: transformer block",)
CHOSEN = [sample for sample in SAMPLES if EVERY or sample.name in WANTED]
# Layers wider than what they read: their bases are open along what nothing writes, until later layers say something.
COUPLED = ("own: linear layers in a row",)
# Queries, keys and values of all layers in one order, with signs of their own in each.
COUPLED += ("roformer (turned values)",)
# Of the distance so much may be left: rounding, over many spaces.
RECOVERED = 1e-7


# Its angles come from products that rounding puts outside of the arc cosine's range.
WITHOUT_NUMBERS = ("yoso",)


@pytest.mark.parametrize(
    "sample", one_in(3, [s for s in CHOSEN if s.name not in WITHOUT_NUMBERS]), ids=lambda sample: sample.name
)
def test_every_element_keeps_the_outputs(sample: Sample) -> None:
    """On parameters, inputs and elements that inference did not see, in every gauge; and it moves parameters."""
    found, plain = inferred(sample), Plain(built(sample))
    assert found.spaces or sample.name in WITHOUT
    # One generator for all: with the same numbers in each, experts that are modules of a list would be equal.
    draw = torch.Generator().manual_seed(11)
    state = {name: generic(x, draw) for name, x in plain.state.items()}
    inputs = in_float64(sample.inputs(torch.Generator().manual_seed(5)))
    expected = plain.kept(state, inputs)
    assert bool(torch.isfinite(expected).all())
    for description in (found, found.after_folding, found.without_biases()):
        if description is None:
            continue
        start = gauged(state, description)
        alignment = Alignment.random(description, torch.Generator().manual_seed(7))
        twin = moved(start, alignment)
        # A random permutation of a few may be the identity.
        acting = [
            name
            for name, space in description.spaces.items()
            if not torch.equal(alignment.elements[name], space.group.identity(space.copies))
        ]
        acted = [name for space in acting for name in description.touching([space]) if name in start]
        assert {name for name in acted if bool(start[name].any()) and torch.equal(twin[name], start[name])} == set()
        error = (plain.kept(apart(twin, found.stacks), inputs) - expected).abs().max() / expected.abs().max()
        assert error < EXACT, f"folded {description.folded}, unbiased {description.unbiased}: {error:.1e}"


# Nothing may move there: what a branch on data reads has a fixed basis.
WITHOUT = ("own: branches on data",)


@pytest.mark.parametrize(
    "sample", one_in(2, [s for s in CHOSEN if s.name not in COUPLED]), ids=lambda sample: sample.name
)
def test_a_planted_alignment_is_found_again(sample: Sample) -> None:
    """A model moved by a random element of every space comes back by its weights alone."""
    found, plain = inferred(sample), Plain(built(sample))
    if not found.spaces:
        assert sample.name in WITHOUT
        return
    state = {name: generic(x, torch.Generator().manual_seed(11)) for name, x in plain.state.items()}
    left = distance_left(found, state)
    assert left < RECOVERED, f"{left:.1e} of the distance is left"


# Of those whose small model is made from a config; segformer's stages take ten seconds.
OF_CONFIGS = [s for s in CHOSEN if s.name in WANTED and not s.name.startswith(("own", "diffusers"))]
GROWN = [s for s in OF_CONFIGS if EVERY or s.name != "segformer"]


@pytest.mark.parametrize("sample", one_in(6, GROWN), ids=lambda sample: sample.name)
def test_what_a_small_model_says_holds_for_a_larger_one(sample: Sample) -> None:
    """The blueprint that users get, of a model of other sizes with guessed inputs, is exact on the sample's own."""
    model = built(sample)
    found, plain = models.inferred(model), Plain(model)
    found.check(model.state_dict())
    assert found.spaces
    state = {name: generic(x, torch.Generator().manual_seed(11)) for name, x in plain.state.items()}
    inputs = in_float64(sample.inputs(torch.Generator().manual_seed(5)))
    expected = plain.kept(state, inputs)
    for description in (found, found.after_folding, found.without_biases()):
        if description is not None:
            twin = moved(gauged(state, description), Alignment.random(description, torch.Generator().manual_seed(7)))
            error = (plain.kept(apart(twin, found.stacks), inputs) - expected).abs().max() / expected.abs().max()
            assert error < EXACT, f"folded {description.folded}, unbiased {description.unbiased}: {error:.1e}"


@pytest.mark.parametrize("sample", CHOSEN, ids=lambda sample: sample.name)
def test_plain_data_says_all_of_a_blueprint(sample: Sample) -> None:
    """What was written and read again agrees in every field, with the types and the order of what it holds."""
    found = inferred(sample)
    assert every_field(loads(dumps(found))) == every_field(found)


def test_a_model_that_takes_more_than_can_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text alone leaves a vision tower unread, whose projector writes into the stream; with an example it is known."""
    monkeypatch.setattr(examples, "stacked_patches", lambda model: [])
    monkeypatch.setenv("FUSIONLAB_CACHE", os.devnull)
    sample = next(s for s in SAMPLES if s.name == "qwen2_vl")
    model = built(sample)
    with pytest.raises(SymmetryError, match=r"input_ids alone leave 'model\.visual.* unread; expected fusionlab"):
        models.inferred(model)
    found = models.inferred(model, sample.inputs(torch.Generator().manual_seed(3)))
    assert models.inferred(model) is found


def test_a_space_on_the_wrong_side_is_noticed() -> None:
    """The demand above is no empty one: with one parameter left out of an element, the outputs change."""
    sample = next(s for s in SAMPLES if s.name == "mixtral")
    found, plain = inferred(sample), Plain(built(sample))
    state = {name: generic(x, torch.Generator().manual_seed(11)) for name, x in plain.state.items()}
    inputs = in_float64(sample.inputs(torch.Generator().manual_seed(5)))
    expected = plain.kept(state, inputs)
    twin = moved(state, Alignment.random(found, torch.Generator().manual_seed(7)))
    for name in twin:
        if not torch.equal(twin[name], state[name]):
            wrong = plain.kept({**twin, name: state[name]}, inputs)
            assert (wrong - expected).abs().max() > 1e-6 * expected.abs().max(), name
