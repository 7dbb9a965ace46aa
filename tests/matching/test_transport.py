"""Optimal transport between units, and matching by permutations alone."""

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fusionlab.errors import InputError
from fusionlab.matching import transport as transporting
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.permutations import match_permutations
from fusionlab.matching.transport import ground_cost, transport
from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.models import generator, outputs, random_model, relative

METRICS = ("euclidean", "sqeuclidean", "cosine")


def features(units: int, seed: int, size: int = 7) -> torch.Tensor:
    return torch.randn(units, size, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("normalised", [False, True])
def test_ground_cost_is_scipys(metric, normalised):
    """Distances of rows as scipy computes them, on rows of length one where that is asked for."""
    a, b = features(9, 0), features(6, 1)
    x, y = (rows / rows.norm(dim=1, keepdim=True) if normalised else rows for rows in (a, b))
    expected = cdist(y.numpy(), x.numpy(), metric)
    np.testing.assert_allclose(ground_cost(a, b, metric, normalised).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_units_that_coincide_cost_nothing(metric):
    """A unit and itself, in either type and on any scale, and a unit that is dead in both models."""
    for rows in (features(8, 0), 1e-8 * features(8, 1), features(8, 2).float()):
        assert float(ground_cost(rows, rows, metric).diagonal().max()) < 1e-12
    dead = torch.zeros(3, 5)
    assert bool(torch.isfinite(ground_cost(dead, features(3, 0, 5), metric)).all())


@pytest.mark.parametrize("metric", METRICS)
def test_exact_transport_is_the_assignment(metric):
    """With uniform weights the optimal plan is a permutation, the one that solves the assignment problem."""
    for seed in range(5):
        cost = ground_cost(features(30, seed), features(30, seed + 10), metric)
        plan = transport(cost)
        rows, order = linear_sum_assignment(cost.numpy())
        assert torch.equal(plan, torch.eye(30, dtype=torch.float64)[torch.from_numpy(order)])
        assert float((plan * cost).sum()) == pytest.approx(cost.numpy()[rows, order].sum())


@pytest.mark.parametrize("scaling", ["max", "median", "none"])
def test_sinkhorn_tends_to_the_exact_plan(scaling):
    """The distance to the permutation falls with the regularisation, down to almost nothing."""
    cost = ground_cost(features(12, 0), features(12, 1))
    exact = transport(cost)
    distances = [
        float((transport(cost, "sinkhorn", regularization, scaling) - exact).abs().max())
        for regularization in (1.0, 0.1, 0.01, 0.002)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.5
    assert distances[-1] < 1e-3


def test_sinkhorn_is_the_entropic_optimum():
    """Diagonal scalings of exp(-cost / regularisation) with uniform marginals: what defines it."""
    cost, regularization = ground_cost(features(9, 0), features(9, 1)), 0.3
    plan = transport(cost, "sinkhorn", regularization, "none")
    torch.testing.assert_close(plan.sum(0), torch.ones(9, dtype=torch.float64), atol=1e-7, rtol=0)
    torch.testing.assert_close(plan.sum(1), torch.ones(9, dtype=torch.float64), atol=1e-12, rtol=0)
    interaction = plan.log() + cost / regularization
    centred = interaction - interaction.mean(0) - interaction.mean(1, keepdim=True) + interaction.mean()
    assert float(centred.abs().max()) < 1e-9


def test_scaling_takes_the_unit_out_of_the_cost():
    """Costs in other units give the same plan, as long as they are scaled."""
    cost = ground_cost(features(10, 0), features(10, 1))
    for scaling in ("max", "median"):
        plans = [transport(factor * cost, "sinkhorn", 0.1, scaling) for factor in (1.0, 1e6)]
        torch.testing.assert_close(*plans, atol=1e-9, rtol=0)


def test_models_of_different_widths():
    """Every row of the map sums to one, whatever the numbers of units are."""
    cost = ground_cost(features(9, 0), features(6, 1))
    for solver in ("exact", "sinkhorn"):
        plan = transport(cost, solver)
        assert plan.shape == (6, 9)
        torch.testing.assert_close(plan.sum(1), torch.ones(6, dtype=torch.float64))


def test_solver_that_stops_early_starts_again(monkeypatch):
    """The network simplex is given too few steps: its plan is not taken, it solves again with more."""
    cost = ground_cost(features(40, 0), features(40, 1))
    expected = transport(cost)
    asked = []
    solve = ot.lp.emd

    def watched(*arguments, numItermax, **options):
        asked.append(numItermax)
        return solve(*arguments, numItermax=numItermax, **options)

    monkeypatch.setattr(transporting.ot.lp, "emd", watched)
    monkeypatch.setattr(transporting, "EXACT_STEPS", 5)
    assert torch.equal(transport(cost), expected)
    assert asked[0] == 5
    assert len(asked) > 1


def test_solver_that_never_ends_is_refused(monkeypatch):
    """Out of steps at every attempt, or a regularisation too small to converge: one sentence, no plan."""
    cost = ground_cost(features(40, 0), features(40, 1))
    monkeypatch.setattr(transporting, "EXACT_STEPS", 1)
    monkeypatch.setattr(transporting, "GROWTH", 1)
    with pytest.raises(InputError, match="not optimal after 1 steps"):
        transport(cost)
    monkeypatch.setattr(transporting, "SINKHORN_STEPS", 3)
    with pytest.raises(InputError, match="did not converge in 3 steps"):
        transport(cost, "sinkhorn", 0.001)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "emd"}, "solver is 'emd'"),
        ({"scaling": "mean"}, "scaling is 'mean'"),
        ({"solver": "sinkhorn", "regularization": 0.0}, "regularization is 0.0"),
        ({"solver": "sinkhorn", "regularization": float("nan")}, "regularization is nan"),
    ],
)
def test_options_are_checked(options, words):
    """An option that does not exist is named."""
    with pytest.raises(InputError, match=words):
        transport(torch.ones(2, 2), **options)
    with pytest.raises(InputError, match="not finite"):
        transport(torch.full((2, 2), torch.nan))
    with pytest.raises(InputError, match="metric is 'angle'"):
        ground_cost(torch.ones(2, 2), torch.ones(2, 2), "angle")


# Permutations in every space


def permuting(description, seed: int) -> Alignment:
    """A random permutation of every space that admits one."""
    draw = generator(seed)
    elements = {}
    for name, space in description.spaces.items():
        if isinstance(space.group, Permutation | Invertible):
            order = Permutation(space.group.size).random(space.copies, draw)
            identity = torch.eye(space.group.size, dtype=torch.float64)
            elements[name] = order if isinstance(space.group, Permutation) else identity[order]
    return Alignment(description, elements)


MODELS = [("bert-sequence", False), ("vit-classifier", False), ("vit-classifier", True), ("timm-plain", True)]


@pytest.mark.parametrize("objective", ["inner", *METRICS])
@pytest.mark.parametrize(("name", "folded"), MODELS)
def test_planted_permutations_are_recovered(name, folded, objective):
    """Stream, heads, inside heads and hidden units permuted: the twin comes back to distance zero."""
    anchor = random_model(name)
    description = blueprint(anchor, folded=folded)
    goal = fold(anchor.state_dict(), description) if folded else anchor.state_dict()
    source = permuting(description, 3).apply(goal)
    assert squared_distance(source, goal) > 1
    found = match_permutations(source, goal, description, MatchOptions(spaces=("all",)), objective)
    assert squared_distance(found.apply(source), goal) < 1e-20


@pytest.mark.parametrize("objective", ["inner", "euclidean"])
@pytest.mark.parametrize(("name", "folded"), MODELS)
def test_function_is_kept_by_permutations(name, folded, objective):
    """Independent models: the twin computes the same, its elements are permutations, and weights do not move away."""
    source, anchor = random_model(name, 0), random_model(name, 1)
    description = blueprint(anchor, folded=folded)
    found = match_permutations(
        *(fold(m.state_dict(), description) if folded else m.state_dict() for m in (source, anchor)),
        description,
        MatchOptions(spaces=("all",)),
        objective,
    )
    assert found.elements
    twin = found.apply(source)
    assert relative(outputs(twin), outputs(source)) < 1e-9
    for space, element in found.elements.items():
        group = description.spaces[space].group
        assert group.check(element, description.spaces[space].copies) is None
        if not isinstance(group, Permutation):
            assert set(element.unique().tolist()) == {0.0, 1.0}
    before = [fold(m.state_dict(), description) if folded else m.state_dict() for m in (source, anchor)]
    assert squared_distance(found.apply(before[0]), before[1]) < squared_distance(*before)


def test_git_re_basin_of_one_layer_is_the_assignment():
    """Hidden units of an uncoupled layer: scipy's assignment on summed inner products of weights and bias."""
    source, anchor = (random_model("bert-sequence", seed).state_dict() for seed in (0, 1))
    description = blueprint(random_model("bert-sequence"))
    found = match_permutations(source, anchor, description, MatchOptions(spaces=("ffn",)))
    at = "bert.encoder.layer.1"
    up, bias, down = (f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight")
    gains = anchor[up] @ source[up].T + torch.outer(anchor[bias], source[bias]) + anchor[down].T @ source[down]
    _, order = linear_sum_assignment(gains.numpy(), maximize=True)
    assert found.elements["layers.1.ffn"].tolist() == order.tolist()
