"""Optimal transport fusion of transformers (Singh and Jaggi, "Model Fusion via Optimal Transport", 2020; Imfeld et al.,
"Transformer Fusion with Optimal Transport", ICLR 2024).

The first model keeps its basis. The units of every other one are transported to its units, layer by layer in the
blueprint's order, and the transported models are averaged. Where a map is a permutation inside a space that admits
it, the transported model computes what it did before; a soft map, a map that mixes heads, and an average of different
maps of the residual stream change its function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.matching.activations import check_comparable
from fusionlab.matching.transport import Metric, Scaling, Solver, ground_cost, refuse_entropy, transport
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.units import Site, find_sites, module_of
from fusionlab.statistics import Activations
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.stacks import apart
from fusionlab.types import State

Features = Literal["weights", "activations"]
Residual = Literal["mean", "last", "first", "all"]
Attention = Literal["separate", "joint", "equal"]
Heads = Literal["mixed", "within"]


@dataclass(frozen=True)
class Policies:
    """The options by which maps are chosen; see `optimal_transport`."""

    residual: Residual
    attention: Attention
    heads: Heads
    normalized: bool


def _needs(features: Features, **_: object) -> tuple[str, ...]:
    return ("blueprint", "activations") if features == "activations" else ("blueprint",)


@merge_method("ot", needs=_needs, refuse=refuse_entropy)
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
) -> dict[str, Tensor]:
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
        The merged state, in the first model's types.

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

    stacks = ingredients.blueprint.stacks
    first, *others = map(ingredients.blueprint.stacked, ingredients.states)
    moved = [
        Flow(
            ingredients.blueprint,
            (state, first),
            (activations[index], activations[0]) if activations else None,
            solve,
            Policies(residual, attention, heads, normalized),
        ).run()
        for index, state in enumerate(others, start=1)
    ]
    return replace(ingredients, states=[ingredients.states[0], *(apart(one, stacks) for one in moved)]).averaged()


class Flow:
    """Maps as they flow through one pair of models, in the blueprint's order of parameters."""

    def __init__(
        self,
        blueprint: Blueprint,
        states: tuple[State, State],
        activations: tuple[Activations, Activations] | None,
        solve: Callable[[Tensor, Tensor], Tensor],
        policies: Policies,
    ) -> None:
        """Prepare to transport one model to another.

        Args:
            blueprint: of both.
            states: the source's and the anchor's parameters.
            activations: the source's and the anchor's, None to take weights as features.
            solve: the map for two models' features by unit, each of shape ``(units, features)``.
            policies: how maps are chosen.
        """
        self.spaces = blueprint.spaces
        self.source = states[0]
        self.moved = {name: states[0][name].double() for name in blueprint.parameters}
        self.anchor = {name: states[1][name].double() for name in blueprint.parameters}
        self.activations, self.solve, self.policies = activations, solve, policies
        shapes = {name: tensor.shape for name, tensor in self.anchor.items()}
        self.sites = find_sites(blueprint, shapes, one_map=policies.attention != "separate")
        self.maps: dict[str, Tensor] = {}
        self.aligned: set[str] = set()
        self.settled: set[tuple[str, str]] = set()

    def run(self) -> dict[str, Tensor]:
        """The source's parameters, transported."""
        for name, sites in self.sites.items():
            self._align(name)
            for site in sites:
                if site.written and (name, site.units) not in self.settled:
                    self._settle(site)
        return {**self.source, **{name: self.moved[name] for name in self.sites}}

    def _align(self, name: str) -> None:
        """Transport what a parameter reads, once."""
        if name in self.aligned:
            return
        self.aligned.add(name)
        for site in self.sites[name]:
            if not site.written:
                rows = self._map(site.units) @ site.rows(self.moved[name])
                self.moved[name] = site.put(self.moved[name], rows)

    def _map(self, units: str) -> Tensor:
        """The map of some units as it is now."""
        if units not in self.maps:
            if self._is_stream(units):
                self.maps[units] = self._begin(units)
            else:
                self._settle_units(units)
        return self.maps[units]

    def _settle(self, site: Site) -> None:
        """Find the map that moves a written site, and move it."""
        if not self._is_stream(site.units):
            self._settle_units(site.units)
            return
        current = self._map(site.units)
        own = [s for s in self._written(site.units) if module_of(s.parameter) == module_of(site.parameter)]
        layer = [s for s in own if self.moved[s.parameter].ndim > 1 and not self._is_embedding(s.parameter)]
        if layer and self.policies.residual in ("mean", "last"):
            for member in own:
                self._align(member.parameter)
            added = self._solve(site.units, *self._features(own))
            self.maps[site.units] = added if self.policies.residual == "last" else (current + added) / 2
            current = added
        self._move(own, current)

    def _settle_units(self, units: str) -> None:
        """One map for units inside a layer, from all that writes to them; both sides of it stacked where joint."""
        every = self._written(units)
        # Tables of embeddings need nothing else to be known; a decoder that shares their space may.
        tables = any(self._is_embedding(site.parameter) for site in every)
        sites = [s for s in every if not tables or all(other.written for other in self.sites[s.parameter])]
        for site in sites:
            self._align(site.parameter)
        sides = [[site for site in sites if site.second == second] for second in (False, True)]
        if self.policies.attention == "joint" and all(sides):
            shapes = [[self.moved[s.parameter].shape for s in side] for side in sides]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f"attention is 'joint', but {units} has not as many keys as queries; expected 'separate' or 'equal'"
                )
            both = [torch.cat(rows) for rows in zip(*map(self._features, sides), strict=True)]
            plan = self._solve(units, *both)
            for pair in zip(*sides, strict=True):
                rows = plan @ torch.cat([site.rows(self.moved[site.parameter]) for site in pair])
                for site, part in zip(pair, rows.chunk(2), strict=True):
                    self._place(site, part)
            self.maps[units] = plan
            return
        self.maps[units] = self._solve(units, *self._features(sites))
        self._move(every, self.maps[units])

    def _begin(self, units: str) -> Tensor:
        """The first map of a residual stream: from its embeddings, or from the first layer that writes to it."""
        everything = self.policies.residual == "all"
        written = [site for site in self._written(units) if self.moved[site.parameter].ndim > 1]
        read = [site for sites in self.sites.values() for site in sites if site.units == units and not site.written]
        starting = [site for site in written if self._is_embedding(site.parameter)]
        if not starting:
            starting = [s for s in written if module_of(s.parameter) == module_of(written[0].parameter)]
            for site in starting:
                self._align(site.parameter)
        if self.activations is not None:
            known = [*written, *read] if everything else starting
            known = [site for site in known if self._sampled(site) is not None]
            # Tables of embeddings are no linear maps: what the first map reads stands in for what they write.
            known = known or [site for site in read if self._sampled(site) is not None][:1]
            if known:
                return self._solve(units, *self._features(known))
        if everything:
            starting += [site for site in read if not any(other.written for other in self.sites[site.parameter])]
        return self._solve(units, *self._features(starting))

    def _features(self, sites: Sequence[Site]) -> tuple[Tensor, Tensor]:
        """Both models' features at some sites, each of shape ``(units, features)``."""
        if self.activations is not None:
            # Parameters that were sampled together (the maps that read one tensor) count once.
            sampled = {key: site for site in sites if (key := self._sampled(site)) is not None}
            if sampled:
                first, second = (
                    torch.cat([self._values(a, site) for site in sampled.values()], 1) for a in self.activations
                )
                return first, second
        return (
            torch.cat([site.rows(self.moved[site.parameter]) for site in sites], 1),
            torch.cat([site.rows(self.anchor[site.parameter]) for site in sites], 1),
        )

    def _sampled(self, site: Site) -> tuple[str, str] | None:
        """The key of the activations at a site; None where there are none."""
        assert self.activations is not None
        linear = self.activations[1].maps.get(site.parameter)
        if linear is None:
            return None
        # An embedding that is the output embedding too is a linear map that reads where the table writes.
        return ("read", linear.inputs) if site.dim == linear.dim else ("written", site.parameter)

    def _values(self, activations: Activations, site: Site) -> Tensor:
        read = activations.maps[site.parameter].dim == site.dim
        values = (activations.inputs if read else activations.outputs)[site.parameter].double()
        rows = values[site.index].flatten(1)
        return rows - rows.mean(1, keepdim=True) if self.policies.normalized else rows

    def _solve(self, units: str, source: Tensor, anchor: Tensor) -> Tensor:
        """The map between all units, or block by block between those of each head."""
        space = self.spaces[units.removesuffix("*")]
        if self.policies.heads == "mixed" or space.count == 1:
            return self.solve(source, anchor)
        head = torch.arange(space.count).repeat_interleave(space.group.size)
        head = head.repeat(source.shape[0] // head.numel())
        found = torch.zeros(head.numel(), head.numel(), dtype=torch.float64)
        for one in range(space.count):
            inside = (head == one).nonzero().squeeze(1)
            found[inside[:, None], inside] = self.solve(source[inside], anchor[inside])
        return found

    def _move(self, sites: Sequence[Site], plan: Tensor) -> None:
        for site in sites:
            self._place(site, plan @ site.rows(self.moved[site.parameter]))

    def _place(self, site: Site, rows: Tensor) -> None:
        self.moved[site.parameter] = site.put(self.moved[site.parameter], rows)
        self.settled.add((site.parameter, site.units))

    def _written(self, units: str) -> list[Site]:
        return [site for sites in self.sites.values() for site in sites if site.units == units and site.written]

    def _is_stream(self, units: str) -> bool:
        return units in self.spaces and self.spaces[units].role == Role.RESIDUAL

    def _is_embedding(self, name: str) -> bool:
        """True if a parameter writes without reading from anything that is transported: tokens, positions, patches."""
        return self.moved[name].ndim > 1 and all(site.written for site in self.sites[name])
