"""Annealing: means of group elements, and a start that does not depend on the basis that models come in."""

import itertools
import math

import pytest
import torch
from scipy.special import gammaln, ive

from fusionlab.matching import annealing
from fusionlab.matching.align import align_states
from fusionlab.matching.annealing import _doubly_stochastic, _mean, _shrinkage
from fusionlab.matching.options import MatchOptions, preset
from fusionlab.matching.solvers import Correlation, plane_correlations, procrustes, solve
from fusionlab.matching.weights import match_weights, rescaled, squared_distance
from fusionlab.symmetry import blueprint
from fusionlab.symmetry.groups import Invertible, OrthogonalFixingOnes, Rotary, Scale
from tests.families.harness import random_model
from tests.families.test_families import CASES
from tests.symmetry.models import generator
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


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


# Means


@pytest.mark.parametrize(("size", "error"), [(2, 0.09), (8, 0.021), (64, 0.0025)])
def test_shrinkage_is_the_ratio_of_bessel_functions(size, error):
    """I_{n/2} / I_{n/2 - 1}, never above it, the closer the larger the space; its integral is the gain."""
    strength = torch.linspace(0.01, 5 * size, 200, dtype=torch.float64, requires_grad=True)
    shrink, gain = _shrinkage(strength, size)
    exact = torch.tensor([ive(size / 2, s) / ive(size / 2 - 1, s) for s in strength.tolist()])
    assert float((exact - shrink.detach()).max()) < error
    assert float((exact - shrink.detach()).min()) > -1e-12
    (slope,) = torch.autograd.grad(gain.sum(), strength)
    assert torch.allclose(slope, shrink.detach(), atol=1e-12)


@pytest.mark.parametrize(("size", "error"), [(2, 0.11), (8, 0.028), (64, 0.0035)])
def test_gain_is_the_logarithm_of_the_mean_of_the_exponential(size, error):
    """Over unit vectors, Gamma(n/2) (2/s)^(n/2 - 1) I_{n/2 - 1}(s); in the plane log I_0(s). A share below it."""
    strength = torch.linspace(0.01, 5 * size, 200, dtype=torch.float64)
    order = size / 2 - 1
    exact = torch.tensor([gammaln(size / 2) + order * math.log(2 / s) + math.log(ive(order, s)) + s for s in strength])
    if size == 2:
        assert torch.allclose(exact, torch.tensor([math.log(ive(0, s)) + s for s in strength], dtype=torch.float64))
    missing = (exact - _shrinkage(strength, size)[1]) / exact
    assert float(missing.max()) < error
    assert float(missing.min()) > -1e-6


@pytest.mark.parametrize("group", [Invertible(6), OrthogonalFixingOnes(6), Rotary(6), Rotary(6, interleaved=True)])
def test_mean_is_nothing_when_hot_and_the_best_element_when_cold(group):
    """In between it is a contraction, and it turns with the bases of both models."""
    correlation = draw(6, 6)
    hot, cold = _mean(group, 1e-9 * correlation)[0], _mean(group, 1e9 * correlation)[0]
    fixed = torch.full((6, 6), 1 / 6, dtype=torch.float64) if isinstance(group, OrthogonalFixingOnes) else 0
    assert float((hot - fixed).abs().max()) < 1e-8
    assert torch.allclose(cold @ cold.mT, torch.eye(6, dtype=torch.float64), atol=1e-6)
    if isinstance(group, Rotary):
        best = plane_correlations(group, correlation).abs().sum()
    else:
        nothing = torch.zeros(6, 6, dtype=torch.float64)
        # The squared distance falls by twice the product, and vectors without length leave nothing else.
        best = solve(group, Correlation(correlation, nothing, nothing[0], nothing[0]), "off")[1] / 2
    assert float((cold * correlation).sum()) == pytest.approx(float(best), rel=1e-7)
    between = _mean(group, correlation)[0]
    assert float(torch.linalg.matrix_norm(between, 2)) <= 1 + 1e-12


def test_mean_rotation_turns_with_both_models():
    left, right = procrustes(draw(6, 6, seed=1))[0], procrustes(draw(6, 6, seed=2))[0]
    correlation = draw(6, 6)
    turned = _mean(Invertible(6), left @ correlation @ right)[0]
    assert torch.allclose(turned, left @ _mean(Invertible(6), correlation)[0] @ right, atol=1e-12)


def test_mean_sign_is_the_one_of_two_weighted_by_their_likelihoods():
    correlation = torch.tensor([[0.7]], dtype=torch.float64)
    mean, gain = _mean(Scale(1, signed=True), correlation)
    up, down = math.exp(0.7), math.exp(-0.7)
    assert float(mean) == pytest.approx((up - down) / (up + down))
    assert float(gain) == pytest.approx(math.log((up + down) / 2))


@pytest.mark.parametrize("size", [0.1, 3.0, 300.0])
def test_mean_permutation_is_doubly_stochastic_and_cold_it_is_the_assignment(size):
    value = size * draw(5, 5)
    mean = _doubly_stochastic(value)
    assert torch.allclose(mean.sum(0), torch.ones(5, dtype=torch.float64))
    assert float((mean.sum(1) - 1).abs().max()) < 0.05
    if size == 300.0:
        orders = itertools.permutations(range(5))
        best = max(orders, key=lambda order: sum(float(value[i, j]) for i, j in enumerate(order)))
        assert tuple(mean.argmax(1).tolist()) == best


# The start


@pytest.mark.parametrize("name", SOME)
def test_scrambled_twin_is_recovered_exactly(name):
    """Random invertible matrices in heads, all permuted and rotated, gains moved: distance zero, from weights alone."""
    model = random_model(BY_NAME[name])
    state, description = model.state_dict(), blueprint(model)
    twin = scrambled(state, description, seed=7)
    found = align_states([twin, state], description, preset("weights"), anchor=1)
    matched, goal = (alignment.apply(s) for alignment, s in zip(found, (twin, state), strict=True))
    assert squared_distance(twin, state) > 0.05 * lengths(state)
    assert squared_distance(matched, goal) < 1e-12 * lengths(goal)


@pytest.mark.parametrize("name", SOME)
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


@pytest.mark.parametrize("relative", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("start", ["known", "annealed", "as-is"])
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
