"""Optimal transport fusion of transformers (Singh and Jaggi, "Model Fusion via Optimal Transport", 2020; Imfeld et al.,
"Transformer Fusion with Optimal Transport", ICLR 2024).

The first model keeps its basis. The units of every other one are transported to its units, layer by layer in the
blueprint's order, and the transported models are averaged. Where a map is a permutation inside a space that admits
it, the transported model computes what it did before; a soft map, a map that mixes heads, and an average of different
maps of the residual stream change its function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from fusionlab.matching.activations import check_comparable
from fusionlab.matching.transport import Metric, Scaling, Solver, ground_cost, refuse_entropy, transport
from fusionlab.merging.flow import Attention, Doubles, Flow, Heads, Policies, Residual
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.registry import merge_method
from fusionlab.merging.units import Sites, find_sites
from fusionlab.statistics import Activations
from fusionlab.symmetry.stacks import apart, entries_of

Features = Literal["weights", "activations"]


def _needs(features: Features, **_: object) -> tuple[str, ...]:
    return ("blueprint", "activations") if features == "activations" else ("blueprint",)


def _sites(survey: WholeSurvey, attention: Attention, **_: Any) -> Sites:
    """The sites of all parameters, stacks as one."""
    blueprint, state = survey.ingredients.blueprint, survey.ingredients.states[0]
    assert blueprint is not None
    shapes = {name: tensor.shape for name, tensor in blueprint.stacked(state).items() if name in blueprint.parameters}
    return Sites(find_sites(blueprint, shapes, one_map=attention != "separate"), shapes)


@merge_method("ot", needs=_needs, refuse=refuse_entropy, survey=_sites, holds=(10, 3))
def optimal_transport(
    ingredients: Ingredients,
    features: Features = "weights",
    solver: Solver = "sinkhorn",
    regularization: float = 0.06,
    ground_metric: Metric = "euclidean",
    normalized: bool = True,
    scaling: Scaling = "max",
    residual: Residual = "mean",
    attention: Attention = "separate",
    heads: Heads = "mixed",
) -> Iterator[dict[str, Tensor]]:
    """Transport every model's units to the first model's, then average: OT-WTS, OT-ACTS and OT-ACTS-EMD.

    With P the optimal plan between the units of two models for uniform weights, T = n P; what writes to the units
    becomes ``T W``, what reads them ``W T^T``. The cost of two units is the distance of their features.

    Args:
        ingredients: what to merge; a blueprint, and activations for ``features="activations"``.
        features: of a unit. ``weights``: its row of the maps that write to it (bias included), whose inputs have been
            transported before. ``activations``: its values at the sampled inputs.
        solver: ``sinkhorn`` (soft maps) or ``exact`` (EMD: permutations).
        regularization: of ``sinkhorn``, in units of the scaled cost; the paper's best are 0.06 for weights and 0.08
            for activations.
        ground_metric: ``euclidean``, ``sqeuclidean`` or ``cosine``.
        normalized: whether features are normalised by unit: activations to mean zero and all to length one.
        scaling: what the cost is divided by before it is regularised: ``max``, ``median`` or ``none``.
        residual: how the map of the residual stream goes on where a layer adds to it. ``mean``: the average of the
            stream's map and the layer's (the paper's averaging); ``last``: the layer's; ``first``: that of the
            embeddings throughout; ``all``: one map throughout, from all that is known of the stream (activations: all
            that is read from it and written to it; weights: all that runs between it and axes that both models share).
        attention: maps of queries and keys: ``separate``; ``joint``, one over the units of both together; ``equal``,
            one and the same for both, the only choice that can keep the function.
        heads: whether maps run over the units of all heads of a layer (``mixed``, as the paper does) or ``within``
            each head, heads in order.

    Returns:
        The merged state, in the first model's types, a few parameters at a time: as their maps are found, and then
        those without units. A layer's maps wait for those of the layers before, of which no parameter is held then.
        Of tied embeddings, that the stream's first map moves and the last one, a model has what the last made.

    Raises:
        InputError: an option that does not exist, activations of different inputs, or a transport without solution.
    """
    assert ingredients.blueprint is not None
    activations = ingredients.gathered(Activations) if features == "activations" else []
    for other in activations[1:]:
        check_comparable(activations[0], other)

    def solve(source: Tensor, anchor: Tensor) -> Tensor:
        cost = ground_cost(source, anchor, ground_metric, normalized)
        return transport(cost, solver, regularization, scaling)

    stacks, spaces = ingredients.blueprint.stacks, ingredients.blueprint.spaces
    sites: Sites = ingredients.surveyed or _sites(WholeSurvey(ingredients), attention)
    first, *others = ingredients.states
    policies, flows = Policies(residual, attention, heads, normalized), []
    for index, state in enumerate(others, start=1):
        known = (activations[index], activations[0]) if activations else None
        flows.append(Flow(sites, spaces, (Doubles(state, stacks), Doubles(first, stacks)), known, solve, policies))
    for moved in zip(*(flow.run() for flow in flows), strict=True):
        names = entries_of(moved[0], stacks)
        states = [{name: first[name] for name in names}, *(apart(one, stacks) for one in moved)]
        yield replace(ingredients, states=states).averaged()
    done = set(entries_of(sites.of, stacks))
    for name in [name for name in first if name not in done]:
        yield replace(ingredients, states=[{name: state[name]} for state in ingredients.states]).averaged()
