"""Maps of units as they flow through a pair of models, in the order of the layers.

A map of a layer is found from what the maps before it made of the layer's inputs, so parameters are asked for one after
the other, and what is held are the maps and the parameters of the layer in work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.units import Site, Sites, module_of
from fusionlab.statistics import Activations
from fusionlab.symmetry import Space
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.stacks import stacked
from fusionlab.types import State

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


class Doubles:
    """The parameters of a state in float64, each made when it is asked for; stacks are one."""

    def __init__(self, state: State, stacks: Mapping[str, tuple[str, ...]]) -> None:
        self.state, self.stacks = state, stacks

    def __getitem__(self, name: str) -> Tensor:
        entries = {entry: self.state[entry] for entry in self.stacks.get(name, (name,))}
        return stacked(entries, {name: self.stacks[name]} if name in self.stacks else {})[name].double()


class Flow:
    """Maps as they flow through one pair of models, in the blueprint's order of parameters."""

    def __init__(
        self,
        sites: Sites,
        spaces: Mapping[str, Space],
        states: tuple[Doubles, Doubles],
        activations: tuple[Activations, Activations] | None,
        solve: Callable[[Tensor, Tensor], Tensor],
        policies: Policies,
    ) -> None:
        """Prepare to transport one model to another.

        Args:
            sites: of both.
            spaces: of their blueprint, by name.
            states: the source's and the anchor's parameters.
            activations: the source's and the anchor's, None to take weights as features.
            solve: the map for two models' features by unit, each of shape ``(units, features)``.
            policies: how maps are chosen.
        """
        self.spaces, self.sites = spaces, sites
        self.source, self.anchor = states
        self.activations, self.solve, self.policies = activations, solve, policies
        self.moved: dict[str, Tensor] = {}  # parameters that some of their maps have moved, and that wait for others
        self.maps: dict[str, Tensor] = {}
        self.left = Counter(site.units for of in sites.of.values() for site in of)  # sites that need the map yet
        self.aligned: set[str] = set()
        self.settled: set[tuple[str, str]] = set()

    def run(self) -> Iterator[dict[str, Tensor]]:
        """The source's parameters, transported: in order, those that all their maps have moved since the last ones."""
        for name, sites in self.sites.of.items():
            self._align(name)
            for site in sites:
                if site.written and (name, site.units) not in self.settled:
                    self._settle(site)
            if done := [name for name in self.moved if self._is_done(name)]:
                yield {name: self.moved.pop(name) for name in done}
                self.left.subtract(site.units for name in done for site in self.sites.of[name])
                self.maps = {units: plan for units, plan in self.maps.items() if self.left[units]}
        assert not self.moved

    def _is_done(self, name: str) -> bool:
        written = [(name, site.units) for site in self.sites.of[name] if site.written]
        return name in self.aligned and self.settled.issuperset(written)

    def _value(self, name: str) -> Tensor:
        """A parameter of the source as it is now."""
        return self.moved[name] if name in self.moved else self.source[name]

    def _align(self, name: str) -> None:
        """Transport what a parameter reads, once."""
        if name in self.aligned:
            return
        self.aligned.add(name)
        for site in self.sites.of[name]:
            if not site.written:
                plan = self._map(site.units)
                value = self._value(name)
                self.moved[name] = site.put(value, plan @ site.rows(value))

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
        own = self.sites.in_module[site.units, module_of(site.parameter)]
        layer = [s for s in own if self.sites.is_table(s.parameter) and not self.sites.is_embedding(s.parameter)]
        if layer and self.policies.residual in ("mean", "last"):
            for member in own:
                self._align(member.parameter)
            added = self._solve(site.units, *self._features(own))
            self.maps[site.units] = added if self.policies.residual == "last" else (current + added) / 2
            current = added
        self._move(own, current)

    def _settle_units(self, units: str) -> None:
        """One map for units inside a layer, from all that writes to them; both sides of it stacked where joint."""
        every = self.sites.written[units]
        # Tables of embeddings need nothing else to be known; a decoder that shares their space may.
        tables = any(self.sites.is_embedding(site.parameter) for site in every)
        sites = [s for s in every if not tables or all(other.written for other in self.sites.of[s.parameter])]
        for site in sites:
            self._align(site.parameter)
        sides = [[site for site in sites if site.second == second] for second in (False, True)]
        if self.policies.attention == "joint" and all(sides):
            shapes = [[site.rows(self._value(site.parameter)).shape for site in side] for side in sides]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f"attention is 'joint', but {units} has not as many keys as queries; expected 'separate' or 'equal'"
                )
            both = [torch.cat(rows) for rows in zip(*map(self._features, sides), strict=True)]
            plan = self._solve(units, *both)
            for pair in zip(*sides, strict=True):
                rows = plan @ torch.cat([site.rows(self._value(site.parameter)) for site in pair])
                for site, part in zip(pair, rows.chunk(2), strict=True):
                    self._place(site, part)
            self.maps[units] = plan
            return
        self.maps[units] = self._solve(units, *self._features(sites))
        self._move(every, self.maps[units])

    def _begin(self, units: str) -> Tensor:
        """The first map of a residual stream: from its embeddings, or from the first layer that writes to it."""
        everything = self.policies.residual == "all"
        written = [site for site in self.sites.written[units] if self.sites.is_table(site.parameter)]
        read = self.sites.read[units]
        starting = [site for site in written if self.sites.is_embedding(site.parameter)]
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
            starting += [site for site in read if not any(other.written for other in self.sites.of[site.parameter])]
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
            torch.cat([site.rows(self._value(site.parameter)) for site in sites], 1),
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
            self._place(site, plan @ site.rows(self._value(site.parameter)))

    def _place(self, site: Site, rows: Tensor) -> None:
        self.moved[site.parameter] = site.put(self._value(site.parameter), rows)
        self.settled.add((site.parameter, site.units))

    def _is_stream(self, units: str) -> bool:
        return units in self.spaces and self.spaces[units].role == Role.RESIDUAL
