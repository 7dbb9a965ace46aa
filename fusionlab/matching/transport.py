"""Optimal transport between the units of two models: ground metrics, plans, and the maps that they are used as.

POT (Flamary et al., "POT: Python Optimal Transport", JMLR 2021) solves; everything is float64. Both models' units have
uniform weights, so that a plan times the number of units is a map whose rows sum to one, and an optimal plan without
regularisation is a permutation.
"""

import warnings
from typing import Literal, get_args

import torch
from torch import Tensor

from fusionlab.errors import InputError

Metric = Literal["euclidean", "sqeuclidean", "cosine"]
Scaling = Literal["max", "median", "none"]
Solver = Literal["exact", "sinkhorn"]

# Network simplex: steps at first, the factor if they did not suffice, and how often it is applied.
EXACT_STEPS, GROWTH, ATTEMPTS = 100_000, 30, 3
SINKHORN_STEPS = 10_000
# How far, in all, the share of units may be from uniform before a regularised plan counts as unsolved.
MARGINAL_ERROR = 1e-3


def check_choice(name: str, value: object, choices: object) -> None:
    """Refuse a value that is none of a Literal's.

    Raises:
        InputError: it is not.
    """
    if value not in get_args(choices):
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(map(str, get_args(choices)))}")


def refuse_entropy(_: object, solver: Solver, regularization: float, **__: object) -> None:
    """Refuse a regularization that is not above 0, where the solver has one; see `transport`.

    Raises:
        InputError: such a one.
    """
    if solver == "sinkhorn" and not regularization > 0:
        raise InputError(f"regularization is {regularization}; expected a number above 0")


def ground_cost(source: Tensor, anchor: Tensor, metric: Metric = "euclidean", normalised: bool = True) -> Tensor:
    """The cost of taking a source's unit for an anchor's.

    Args:
        source: one row of features for each unit, shape ``(n, features)``.
        anchor: the same of the other model, shape ``(m, features)``.
        metric: ``euclidean`` distance (Singh and Jaggi, 2020), its square, or one minus the cosine.
        normalised: whether rows are divided by their length first; a row of zeros stays.

    Returns:
        Shape ``(m, n)``, float64, never negative.
    """
    a, b = source.double(), anchor.double()
    if normalised or metric == "cosine":
        a, b = (torch.nn.functional.normalize(rows, dim=-1, eps=1e-300) for rows in (a, b))
    return ground_cost_from_products(b @ a.mT, a.square().sum(-1), b.square().sum(-1), metric, normalised=False)


def ground_cost_from_products(
    products: Tensor, source: Tensor, anchor: Tensor, metric: Metric, normalised: bool
) -> Tensor:
    """`ground_cost` where only inner products are known.

    Args:
        products: of every anchor's unit with every source's, shape ``(..., m, n)``.
        source: squared length of every source's unit, shape ``(..., n)``.
        anchor: of every anchor's, shape ``(..., m)``.

    Returns:
        Shape ``(..., m, n)``, float64, never negative.
    """
    check_choice("metric", metric, Metric)
    c, a, b = products.double(), source.double().unsqueeze(-2), anchor.double().unsqueeze(-1)
    if normalised or metric == "cosine":
        c = c / (a * b).sqrt().clamp_min(1e-300)
        a, b = (a > 0).double(), (b > 0).double()
    if metric == "cosine":
        return (1 - c).clamp_min(0)
    squares = (a + b - 2 * c).clamp_min(0)
    # Distances of units that coincide are rounding errors, and a root would make them large.
    squares = torch.where(squares > 1e-14 * (a + b), squares, 0.0)
    return squares.sqrt() if metric == "euclidean" else squares


def transport(cost: Tensor, solver: Solver = "exact", regularization: float = 0.06, scaling: Scaling = "max") -> Tensor:
    """The map from a source's units to an anchor's that an optimal plan is used as: its barycentric projection.

    Args:
        cost: shape ``(m, n)``, anchor's unit by source's.
        solver: ``exact`` (network simplex; a permutation where m = n) or ``sinkhorn`` (entropic; Cuturi, 2013).
        regularization: of ``sinkhorn``, in units of the scaled cost, above 0.
        scaling: what the cost is divided by first, for ``sinkhorn``: its ``max``, its ``median``, or ``none``.

    Returns:
        Shape ``(m, n)``, float64: row i says how much of every source's unit stands at the place of anchor's unit i.
        Rows sum to one.

    Raises:
        InputError: an option that does not exist, a cost that is not finite, or a solver that did not converge.
    """
    check_choice("solver", solver, Solver)
    check_choice("scaling", scaling, Scaling)
    refuse_entropy(None, solver, regularization)
    if not bool(torch.isfinite(cost).all()):
        raise InputError("optimal transport met a cost that is not finite; expected finite parameters and activations")
    plan = _exact(cost) if solver == "exact" else _sinkhorn(_scaled(cost, scaling), regularization)
    # Of the entropic plan the rows are exact, of the exact one both.
    return plan * cost.shape[0]


def _uniform(count: int) -> Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def _exact(cost: Tensor) -> Tensor:
    """The optimal plan; a solver that runs out of steps starts again with more of them."""
    import ot  # noqa: PLC0415 - imports scikit-learn, which takes a second that no other matching needs

    marginals = [_uniform(count).numpy() for count in cost.shape]
    matrix = cost.double().cpu().contiguous().numpy()
    steps = EXACT_STEPS
    for _ in range(ATTEMPTS):
        with warnings.catch_warnings():
            # What the solver warns of is in the log as well.
            warnings.simplefilter("ignore")
            plan, log = ot.lp.emd(*marginals, matrix, numItermax=steps, log=True)
        if log["warning"] is None:
            found = torch.from_numpy(plan)
            square = cost.shape[0] == cost.shape[1]
            return (found * cost.shape[0]).round() / cost.shape[0] if square else found
        steps *= GROWTH
    raise InputError(
        f"exact optimal transport of {cost.shape[0]} units is not optimal after {steps // GROWTH} steps "
        f"({log['warning']}); expected a solution, so use solver 'sinkhorn'"
    )


def _sinkhorn(cost: Tensor, regularization: float) -> Tensor:
    """The entropic plan, in the log domain."""
    import ot  # noqa: PLC0415

    marginals = [_uniform(count).numpy() for count in cost.shape]
    plan = ot.bregman.sinkhorn_log(
        *marginals, cost.cpu().numpy(), regularization, numItermax=SINKHORN_STEPS, stopThr=1e-9, warn=False
    )
    found = torch.from_numpy(plan)
    error = float((found.sum(0) - 1 / cost.shape[1]).abs().sum())
    if not error <= MARGINAL_ERROR:
        raise InputError(
            f"Sinkhorn did not converge in {SINKHORN_STEPS} steps with regularization {regularization}; "
            f"expected a larger one, or solver 'exact'"
        )
    return found


def _scaled(cost: Tensor, scaling: Scaling) -> Tensor:
    cost = cost.double()
    if scaling == "none":
        return cost
    unit = cost.max() if scaling == "max" else cost.median()
    return cost / unit if unit > 0 else cost
