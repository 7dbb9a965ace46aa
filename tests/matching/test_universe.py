"""Many models matched to their mean: none is the anchor, and the order they are listed in does not matter."""

import itertools

import pytest
import torch

from fusionlab.matching import universe
from fusionlab.matching.align import align_states
from fusionlab.matching.presets import preset
from fusionlab.matching.universe import match_universe, spread_of
from fusionlab.matching.weights import match_weights, rescaled, squared_distance
from fusionlab.symmetry import blueprint
from tests.families.harness import random_model
from tests.families.test_families import CASES
from tests.parts import EVERY, one_in
from tests.symmetry.scramble import scrambled

BY_NAME = {case.name: case for case in CASES}
NAMES = ("vit-classifier", "bert-sequence", next(name for name in BY_NAME if name.startswith("llama")))
MEAN = preset("weights", towards="mean")


def several(name, count):
    models = [random_model(BY_NAME[name], seed=seed) for seed in range(count)]
    return [model.state_dict() for model in models], blueprint(models[0])


def twins_of(states, description, options, anchor=0):
    found = align_states(states, description, options, anchor)
    return [alignment.apply(state) for alignment, state in zip(found, states, strict=True)]


def pairwise(twins):
    return torch.tensor([[squared_distance(a, b) for a in twins] for b in twins], dtype=torch.float64)


@pytest.mark.parametrize("name", one_in(2, NAMES[:2]))
def test_result_does_not_depend_on_the_order(name):
    """Distances between all twins, and so their merge up to a common basis, for another order and anchor."""
    states, description = several(name, 3)
    expected = pairwise(twins_of(states, description, MEAN))
    order = (2, 0, 1)
    found = pairwise(twins_of([states[i] for i in order], description, MEAN, anchor=1))
    assert torch.allclose(found, expected[list(order)][:, list(order)], rtol=1e-8)


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_scrambled_twins_of_one_model_are_all_recovered(name):
    states, description = several(name, 1)
    copies = [scrambled(states[0], description, seed=seed) for seed in range(3)]
    twins = twins_of(copies, description, MEAN)
    whole = sum(float(x.square().sum()) for x in twins[0].values())
    assert float(pairwise(twins).max()) < 1e-12 * whole


def test_two_models_are_matched_as_a_pair():
    """The anchor is the mean enough: towards either, the alignments are the same to the bit."""
    states, description = several("vit-classifier", 2)
    both = [twins_of(states, description, preset("weights", towards=goal)) for goal in ("anchor", "mean")]
    assert all(torch.equal(both[0][i][n], both[1][i][n]) for i in (0, 1) for n in both[0][i])


def test_more_rounds_never_spread_the_models(monkeypatch):
    """The summed squared distance to the mean falls from round to round, and rounds matter."""
    states, description = several("vit-classifier", 3)
    options = preset("weights", rescale="sequential", gauge=())
    reached = []
    for rounds in (0, 1, 2, 100 if EVERY else 5):
        monkeypatch.setattr(universe, "ROUNDS", rounds)
        found = match_universe(states, description, options)
        names = description.touching(description.spaces)
        models = rescaled([{name: state[name] for name in names} for state in states], options.relative)
        reached.append(
            spread_of([{n: a.apply_to(n, x) for n, x in m.items()} for a, m in zip(found, models, strict=True)])
        )
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(reached))
    assert reached[-1] < reached[0]


def test_a_round_leaves_the_last_model_at_its_best(monkeypatch):
    """Each is matched to the mean of the others, itself left out: no rotation of the last one spreads them less."""
    monkeypatch.setattr(universe, "ROUNDS", 1)
    states, description = several("bert-sequence", 4)
    options = preset("weights", spaces=("attention.vo",), gauge=(), relative=0)
    found = match_universe(states, description, options)
    twins = [alignment.apply(state) for alignment, state in zip(found, states, strict=True)]
    touched = description.touching(space.name for space in options.select(description))
    lengths = [sum(float(twin[name].square().sum()) for name in touched) for twin in twins]
    last = lengths.index(min(lengths))
    others = universe.mean_state([twin for index, twin in enumerate(twins) if index != last])
    step = match_weights(twins[last], others, description, options)
    moved = [step.apply(twin) if index == last else twin for index, twin in enumerate(twins)]
    assert spread_of(moved) == pytest.approx(spread_of(twins), rel=1e-12)


def test_anchor_keeps_its_basis(monkeypatch):
    """Only the gauge changes it, as where all are matched to it."""
    monkeypatch.setattr(universe, "ROUNDS", 2)
    states, description = several("vit-classifier", 3)
    by_mean, by_anchor = (
        align_states(states, description, preset("weights", towards=t), 1) for t in ("mean", "anchor")
    )
    mean, anchored = by_mean[1].apply(states[1]), by_anchor[1].apply(states[1])
    assert all(torch.equal(mean[name], anchored[name]) for name in mean)
