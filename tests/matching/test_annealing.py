"""Annealing: a start that does not depend on the basis that models come in."""

import itertools
import math

import pytest
import torch

from fusionlab.matching import annealing
from fusionlab.matching.align import align_states
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import match_weights, rescaled, squared_distance
from fusionlab.symmetry import blueprint
from tests.families.harness import random_model
from tests.families.test_families import CASES
from tests.parts import one_in
from tests.symmetry.infer.cases import BY_NAME as SAMPLES
from tests.symmetry.models import generator, randomize
from tests.symmetry.scramble import scrambled

BY_NAME = {case.name: case for case in CASES}
# Pre-norm and post-norm, RoPE and grouped queries, gates, fused projections, tied embeddings, several stacks.
SOME = (
    "vit-classifier",
    "vit-relu",
    "gpt2-lm-untied",
    "timm-vit-swiglu",
    "neox-lm",
    "bert-masked",
    "t5-v1.1-lm-untied",
    "bart-sequence",
    *[name for name in BY_NAME if name.startswith("llama")][:2],
)


def lengths(state):
    return sum(float(x.double().square().sum()) for x in state.values())


@pytest.mark.parametrize("name", one_in(2, SOME[::2]))
def test_scrambled_twin_is_recovered_exactly(name):
    """Random invertible matrices in heads, all permuted and rotated, gains moved: distance zero, from weights alone."""
    model = random_model(BY_NAME[name])
    state, description = model.state_dict(), blueprint(model)
    twin = scrambled(state, description, seed=7)
    found = align_states([twin, state], description, preset("weights"), anchor=1)
    matched, goal = (alignment.apply(s) for alignment, s in zip(found, (twin, state), strict=True))
    assert squared_distance(twin, state) > 0.05 * lengths(state)
    assert squared_distance(matched, goal) < 1e-12 * lengths(goal)


@pytest.mark.parametrize("seed", [0, 1])
def test_units_that_several_factors_turn_round_are_recovered(seed):
    """The gates of LFM2's convolutions: three signs for each unit, of which any number is negative."""
    model = randomize(SAMPLES["lfm2"].build(), seed)
    state, description = model.state_dict(), blueprint(model)
    twin = scrambled(state, description, seed=7 + seed)
    found = align_states([twin, state], description, preset("weights", start="annealed"), anchor=1)
    matched, goal = (alignment.apply(s) for alignment, s in zip(found, (twin, state), strict=True))
    assert squared_distance(twin, state) > 0.05 * lengths(state)
    assert squared_distance(matched, goal) < 1e-12 * lengths(goal)


@pytest.mark.parametrize("name", one_in(4, SOME[1::2]))
def test_merge_with_a_scrambled_twin_equals_the_merge_with_the_original(name):
    """Independent models: what comes out does not depend on the basis that the source happened to come in."""
    source, anchor = (random_model(BY_NAME[name], seed=seed) for seed in (0, 1))
    first, second, description = source.state_dict(), anchor.state_dict(), blueprint(anchor)
    merged = []
    for start in (first, scrambled(first, description, seed=7)):
        found = align_states([start, second], description, preset("weights"), anchor=1)
        twins = [alignment.apply(state) for alignment, state in zip(found, (start, second), strict=True)]
        merged.append({key: (twins[0][key] + twins[1][key]) / 2 for key in second})
    assert squared_distance(*merged) < 1e-16 * lengths(merged[0])


def test_models_near_each_other_are_not_annealed(monkeypatch):
    """Fine-tunes of one base start from where they are, at no cost."""
    model = random_model(BY_NAME["vit-classifier"])
    state, description = model.state_dict(), blueprint(model)
    near = {key: x + 0.01 * torch.randn(x.shape, generator=generator(1), dtype=x.dtype) for key, x in state.items()}
    monkeypatch.setattr(annealing, "_expect", lambda *arguments: pytest.fail("annealed"))
    found = align_states([near, state], description, preset("weights"), anchor=1)
    twins = [alignment.apply(s) for alignment, s in zip(found, (near, state), strict=True)]
    assert squared_distance(*twins) <= squared_distance(*(found[1].apply(s) for s in (near, state)))


@pytest.mark.parametrize(("start", "relative"), one_in(2, [("known", 0.0), ("annealed", 0.5), ("as-is", 1.0)]))
def test_more_sweeps_never_move_away(start, relative):
    """In the distance that is minimised, whatever the start."""
    source, anchor = (random_model(BY_NAME["gpt2-lm-untied"], seed=seed) for seed in (0, 1))
    description = blueprint(anchor, folded=True)
    first, second = source.state_dict(), anchor.state_dict()

    def left(sweeps):
        options = MatchOptions(("all",), rescale="off", start=start, relative=relative, sweeps=sweeps, temperatures=5)
        found = match_weights(first, second, description, options)
        touched = description.touching(description.spaces)
        kept = [{key: state[key] for key in touched} for state in (first, second)]
        models = rescaled(kept, relative)
        return squared_distance({key: found.apply_to(key, x) for key, x in models[0].items()}, models[1])

    reached = [left(sweeps) for sweeps in (1, 2, 3, 5, 50)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(reached))


def test_relative_distance_counts_every_module_alike():
    """At power 1 every module's lengths in the models have a geometric mean of one; at 0 nothing changes."""
    states = [random_model(BY_NAME["gpt2-lm-untied"], seed=seed).state_dict() for seed in (0, 1, 2)]
    for state in rescaled(states, 0.0):
        assert any(all(torch.equal(state[key], x) for key, x in other.items()) for other in states)
    models = rescaled(states, 1.0)
    modules = {key.rpartition(".")[0] for key in states[0]}
    for module in modules:
        product = math.prod(lengths({k: x for k, x in m.items() if k.rpartition(".")[0] == module}) for m in models)
        assert product == pytest.approx(1)


@pytest.mark.parametrize("relative", [0.0, 1.0])
def test_the_distance_that_is_asked_for_is_the_one_that_is_least(relative):
    """Of a module whose parameters are thirty times as large: either distance is less where it was asked for."""
    description = blueprint(random_model(BY_NAME["gpt2-lm-untied"]), folded=True)
    states = []
    for seed in (0, 1):
        state = random_model(BY_NAME["gpt2-lm-untied"], seed=seed).state_dict()
        states.append({key: 30 * x if key.startswith("transformer.wte") else x for key, x in state.items()})
    touched = description.touching(description.spaces)
    models = rescaled([{key: state[key] for key in touched} for state in states], relative)

    def left(asked):
        options = MatchOptions(("all",), rescale="off", start="known", relative=asked, sweeps=20)
        found = match_weights(*states, description, options)
        return squared_distance({key: found.apply_to(key, x) for key, x in models[0].items()}, models[1])

    assert left(relative) < 0.99 * left(1.0 - relative)
