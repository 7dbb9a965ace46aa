"""Groups that are tried: one is accepted only where it leaves a model's outputs alone, and a part of it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.change import relative_change
from fusionlab.symmetry.evidence import Outcome, Trial
from fusionlab.symmetry.groups import Copies, Group, Invertible, Permutation, Signs
from fusionlab.symmetry.infer.dims import Atom, Dim, Stretch, Sum, Variable
from fusionlab.symmetry.infer.found import Action, Powers
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.layout import Acting, InexpressibleError, Layout, leading_atoms
from fusionlab.symmetry.infer.slopes import Slopes
from fusionlab.symmetry.roles import Role

# Relative change of the outputs, in float64, up to which they are the same.
EXACT = 1e-9
# Relative change above which outputs depend on what was changed; far from `EXACT`, so that the two cannot be confused.
SEEN = 1e-7
# Parts of an action that are tried alone, at most.
TRIED_PARTS = 3
# Sets of spaces that may index the copies of one, at most so many are tried.
SUBSETS = 16
# The name of the space that is tried, and of the spaces around it.
TRIED, AROUND = "tried", "around"


@dataclass
class Attempts:
    """Groups tried on the hidden spaces of a model that was read, by random elements and in float64.

    Attributes:
        reading: the model.
        seed: of the elements that are tried.
        members: by space, where it runs through parameters.
        around: by stretch, the spaces whose blocks it lies inside of on its dimension, outermost first.
        trials: by space, the groups that were tried, in order, what became of each, and the stretches it was tried on.
    """

    reading: Reading
    seed: int = 0
    members: dict[Variable, list[Stretch]] = field(default_factory=dict)
    around: dict[Stretch, tuple[Variable, ...]] = field(default_factory=dict)
    trials: dict[Variable, list[tuple[Trial, frozenset[Stretch]]]] = field(default_factory=dict)
    _outer: dict[Stretch, tuple[Variable, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        self.state: Mapping[str, Tensor] = self.reading.traced.state
        self.expected = self.reading.traced(self.state)
        self._slopes = Slopes(self.reading.traced, self.state)
        for dims in self.reading.parameters.values():
            leading = [leading_atoms(dim) for dim in dims]
            for position, dim in enumerate(dims):
                beside = [v for other, vs in enumerate(leading) if other != position for v in vs]
                for atom, path in _atoms_and_paths(dim, ()):
                    (stretch,) = atom.exponent
                    self.members.setdefault(atom.variable, []).append(stretch)
                    self.around[stretch] = path
                    self._outer[stretch] = tuple(dict.fromkeys((*beside, *path)))

    def same(self, state: Mapping[str, Tensor]) -> bool:
        """The model computes with these parameters what it computes with its own."""
        return self._change(state) <= EXACT

    def is_silent(self, name: str) -> bool:
        """The outputs do not depend on a parameter."""
        noise = torch.rand(self.state[name].shape, generator=self.generator, dtype=torch.float64)
        return not self._slopes.is_seen(name) and self.same({**self.state, name: self.state[name] + noise})

    def unseen_shift(self, name: str, dim: int) -> Tensor | None:
        """A parameter with random constants added along a dimension; None where the outputs change."""
        shape = [1 if d == dim else size for d, size in enumerate(self.state[name].shape)]
        shifted = self.state[name] + torch.randn(shape, generator=self.generator, dtype=torch.float64)
        is_seen = self._slopes.is_seen(name, dim) or not self.same({**self.state, name: shifted})
        return None if is_seen else shifted

    def _change(self, state: Mapping[str, Tensor]) -> float:
        """The change of the outputs with these parameters, of the largest; infinite where they cannot be computed."""
        try:
            out = self.reading.traced(state)
        except (RuntimeError, IndexError):
            # The graph was traced for what these parameters chose: how many tokens an expert got, for instance.
            return float("inf")
        change = relative_change(out, self.expected)
        # Outputs that are zero whatever the parameters are say nothing.
        return float("inf") if math.isnan(change) or not self.expected.any() else change

    def attempt(
        self, group: Group, variable: Variable, powers: Powers, state: Mapping[str, Tensor] | None = None
    ) -> Action | None:
        """The group acting by `powers`, with as many copies as pass; None where it is no symmetry."""
        state = self.state if state is None else state
        acting = [stretch for stretch in self.members[variable] if powers.get(stretch)]
        if not acting or (
            any(name in self.reading.notes.offsets for name, _, _ in acting) and not isinstance(group, Permutation)
        ):
            return None
        changes = []
        for index in self._indices(variable, acting, group.is_factor):
            action = Action(group, powers, index)
            try:
                changes.append(self._largest_change(action, variable, state))
            except InexpressibleError:
                continue
            if changes[-1] <= EXACT:
                is_seen = self._is_seen(action, variable, state)
                self._note(variable, group, acting, Outcome.TAKEN if is_seen else Outcome.UNSEEN, changes[-1], state)
                return action if is_seen else None
        outcome = Outcome.CHANGED if changes else Outcome.UNTRIED
        self._note(variable, group, acting, outcome, min(changes, default=math.inf), state)
        return None

    def _largest_change(self, action: Action, variable: Variable, state: Mapping[str, Tensor]) -> float:
        """The largest change of the outputs by random elements, up to the first that is not exact."""
        largest = 0.0
        for moved in self._moved(action, variable, state):
            largest = max(largest, self._change(moved))
            if largest > EXACT:
                break
        return largest

    def _note(
        self,
        variable: Variable,
        group: Group,
        acting: Sequence[Stretch],
        outcome: Outcome,
        change: float,
        state: Mapping[str, Tensor],
    ) -> None:
        """Note what became of a group that was tried."""
        # Two digits: the others are of one processor's rounding.
        told = float(f"{change:.1e}") if math.isfinite(change) else None
        trial = Trial(group, outcome, told, folded=state is not self.state)
        self.trials.setdefault(variable, []).append((trial, frozenset(acting)))

    def _indices(
        self, variable: Variable, acting: Sequence[Stretch], is_factor: bool
    ) -> Iterator[tuple[Variable, ...]]:
        """The spaces that stand around all stretches, most of them first.

        Copies that nothing permutes have names of their own, which a factor has no axis for but inside of their blocks.
        """
        first = self._outer[acting[0]]
        common = [v for v in first if v is not variable and all(v in self._outer[s] for s in acting)]
        if is_factor:
            common = [v for v in common if not v.is_fixed or all(v in self.around[s] for s in acting)]
        chosen = (c for count in range(len(common), -1, -1) for c in combinations(common, count))
        for _, index in zip(range(SUBSETS), chosen, strict=False):
            yield index

    def _moved(self, action: Action, variable: Variable, state: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """The model, moved by random elements."""
        blueprint = self._tried(action, variable)
        space = blueprint.spaces[TRIED]
        for element in self._elements(space):
            alignment = Alignment(blueprint, {TRIED: element})
            yield {**state, **{name: alignment.apply_to(name, state[name]) for name in blueprint.parameters}}

    def _tried(self, action: Action, variable: Variable) -> Blueprint:
        """A blueprint of one space and what stands around it."""
        index = action.index
        # Places inside that nothing moves or counts, such as those of a channel's image, are no space.
        outer = {*index, *(v for stretch in self.members[variable] for v in self.around[stretch])}
        around = [v for v in self.members if v is not variable and (v in outer or not v.is_fixed)]
        others = {v: f"{AROUND}{i}" for i, v in enumerate(around)}
        is_permutation = isinstance(action.group, Permutation)
        if action.group.is_factor:
            others[variable] = f"{AROUND}{len(self.members)}"
            index = (*index, variable)
        layout = Layout(
            others | ({variable: TRIED} if is_permutation else {}),
            {} if is_permutation else {variable: (Acting(TRIED, action.group, action.powers),)},
            {TRIED: index},
        )
        touched = {name for (name, _, _), power in action.powers.items() if power}
        parameters = {name: layout.axes(self.reading.parameters[name]) for name in self.state if name in touched}
        spaces = {name: Space(name, Permutation(v.size), Role.UNITS) for v, name in others.items()}
        copies: Copies = tuple(v.size for v in index)
        names = tuple(others[v] for v in index)
        spaces[TRIED] = Space(TRIED, action.group, Role.UNITS, index=names, copies=copies)
        return Blueprint("tried", spaces, parameters)

    def _elements(self, space: Space) -> Iterator[Tensor]:
        if isinstance(space.group, Permutation):
            # One copy alone by a cycle: sharp where there are few permutations.
            cycle = space.group.identity(space.copies)
            cycle[(-1,) * len(space.copies)] = cycle[(-1,) * len(space.copies)].roll(1)
            yield cycle
        if isinstance(space.group, Signs):
            # One coordinate alone: of a few, random ones may all stay.
            turned = space.group.identity(space.copies)
            turned[(-1,) * turned.ndim] = -1
            yield turned
        yield space.group.random(space.copies, self.generator)

    def _is_seen(self, action: Action, variable: Variable, state: Mapping[str, Tensor]) -> bool:
        """A part of what acts, alone, changes the outputs: what they do not depend on shows no symmetry."""
        acting = [stretch for stretch in self.members[variable] if action.powers.get(stretch)]
        if len(self.members[variable]) == 1:
            return self._depends_on(action, variable, state)
        names = dict.fromkeys(name for name, _, _ in acting)
        if isinstance(action.group, Permutation):
            if len(names) < 2:
                return len(acting) > 1
            parts = [{s: p for s, p in action.powers.items() if s[0] == name} for name in names]
        else:
            sides = dict.fromkeys((stretch[0], action.powers[stretch]) for stretch in acting)
            parts = [{s: p for s, p in action.powers.items() if (s[0], p) == side} for side in sides]
        if len(parts) < 2:
            # One fused parameter: signs act on its queries and on its keys alike.
            parts = [{stretch: action.powers[stretch]} for stretch in acting]
        if len(parts) < 2:
            return False
        parts.sort(key=lambda part: -max(state[name].numel() for name, _, _ in part))
        for part in parts[:TRIED_PARTS]:
            for moved in self._moved(Action(action.group, part, action.index), variable, state):
                if self._change(moved) > SEEN:
                    return True
        return False

    def _depends_on(self, action: Action, variable: Variable, state: Mapping[str, Tensor]) -> bool:
        """Some other matrix than the group's, acting in its place, changes the outputs."""
        other = Action(Invertible(variable.size), action.powers, action.index)
        try:
            return any(self._change(moved) > SEEN for moved in self._moved(other, variable, state))
        except InexpressibleError:
            return False


def _atoms_and_paths(dim: Dim, path: tuple[Variable, ...]) -> Iterator[tuple[Atom, tuple[Variable, ...]]]:
    """Every atom of a type with the spaces that it lies inside of, outermost first."""
    for factor in dim:
        if isinstance(factor, Atom):
            yield factor, path
            path = (*path, factor.variable)
        elif isinstance(factor, Sum):
            for part in factor.parts:
                yield from _atoms_and_paths(part, path)
