"""A blueprint of all that was found in a model: named, with axes, checked once more as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from fusionlab.symmetry.axes import Axis, Fixed, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.evidence import Outcome, Trial, best_of_each
from fusionlab.symmetry.infer.attempts import Attempts
from fusionlab.symmetry.infer.dims import Stretch, Variable
from fusionlab.symmetry.infer.factors import Factor, named_factors
from fusionlab.symmetry.infer.found import Action, Found
from fusionlab.symmetry.infer.gauges import centred, seen_biases, unseen_means
from fusionlab.symmetry.infer.inputs import inputs_of
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.layout import Acting, InexpressibleError, Layout
from fusionlab.symmetry.infer.names import ORDER, Place, names_of, places_of, roles_of
from fusionlab.symmetry.infer.other_batch import OtherBatch
from fusionlab.symmetry.infer.outputs import by_kind
from fusionlab.symmetry.infer.reasons import reasons
from fusionlab.symmetry.infer.second_names import second_names, with_second_names
from fusionlab.symmetry.inputs import Input
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.stacks import stacked


@dataclass
class Assembly:
    """All that was found in a model, to be made a blueprint of.

    Attributes:
        reading: of the model's graph.
        attempts: on it.
        found: the symmetry of every space; what does not hold after all is taken out.
        architecture: what to call it.
        drawn: what was drawn in place of inputs that were the same for all.
        owners: by space of the blueprint, where it is from.
    """

    reading: Reading
    attempts: Attempts
    found: list[Found]
    architecture: str
    drawn: Mapping[str, Input]
    owners: dict[str, tuple[Found, Action]] = field(default_factory=dict)

    def build(self, model: nn.Module) -> Blueprint:
        """As the model stands, and after folding where that frees more.

        What cannot be described, or does not hold on another batch, is left out, with a note.
        """
        traced = self.reading.traced
        other = OtherBatch(model, traced.inputs, traced.state, traced.stacks)
        dropped: list[str] = []
        same = second_names(model)
        while True:
            try:
                blueprint = with_second_names(self._described(model, other), same)
                for described in (blueprint, blueprint.after_folding, blueprint.without_biases()):
                    wrong = None if described is None else other.wrong(described)
                    if wrong is not None:
                        raise _WrongError(*self.owners[wrong.space], f"it does not hold for {wrong.where}")
            except _WrongError as error:
                if (less := _less(error)) is not None:
                    # What is left may be described, or hold.
                    error.found.drop(less)
                    self.found = [one for one in self.found if one.actions]
                    continue
                dropped.append(f"no symmetry of {error.found.stretches[0][0]}: {error}")
                self.found = [one for one in self.found if one is not error.found]
            else:
                break
        notes = (*reasons(blueprint, self.reading, self.attempts, is_tied=bool(same)), *dropped)
        after = blueprint.after_folding
        return replace(blueprint, notes=notes, after_folding=after and replace(after, notes=notes))

    def _described(self, model: nn.Module, other: OtherBatch) -> Blueprint:
        as_is = self._blueprint(model, is_folded=False)
        seen = seen_biases(as_is, self.attempts)
        as_is = replace(as_is, seen_key_biases=seen, unseen_means=unseen_means(as_is, self.attempts, other))
        rotating = [one for one in self.found if one.rotation is not None]
        if not rotating:
            return as_is
        norms = tuple(norm for one in rotating for norm in one.norms)
        scales = tuple(scale for one in rotating for scale in one.layer_scales)
        after = self._blueprint(model, is_folded=True)
        as_is = replace(as_is, norms=norms, layer_scales=scales)
        after = replace(after, norms=norms, layer_scales=scales, folded=True, seen_key_biases=seen)
        after = replace(after, unseen_means=as_is.unseen_means)
        mean = centred(after, self.attempts)
        return replace(as_is, centred=mean, after_folding=replace(after, centred=mean))

    def _blueprint(self, model: nn.Module, is_folded: bool) -> Blueprint:
        self.owners.clear()
        roles = roles_of(self.found, self.reading.notes, self.attempts.around, self.reading.parameters)
        places = places_of(self.found, list(self.reading.parameters))
        names = names_of(self.found, roles, places)
        permuted = {one.variable for one in self.found if one.permutation is not None}
        numbered = frozenset(
            outer for one in self.found for action in one.actions for outer in action.index if outer not in permuted
        )
        permutations: dict[Variable, str] = {}
        acting: dict[Variable, tuple[Acting, ...]] = {}
        index: dict[str, tuple[Variable, ...]] = {}
        spaces: dict[str, Space] = {}
        order = _indexes_first(sorted(self.found, key=lambda one: self._rank(one, roles, places)))
        for one in order:
            rotates = is_folded and one.rotation is not None
            whole = one.rotation if rotates else one.basis
            name, role, layer = names[one.variable], roles[one.variable], places[one.variable].layer
            if whole is not None:
                acting[one.variable] = (Acting(name, whole.group, self._powers(whole)),)
                index[name] = whole.index
                self._declare(spaces, one, name, whole, whole.index, role, layer, names, numbered)
            elif one.permutation is not None:
                permutations[one.variable] = name
                index[name] = one.permutation.index
                action = one.permutation
                self._declare(spaces, one, name, action, action.index, role, layer, names, numbered)
            factors = named_factors(one, name, role, layer, self.reading.notes.gains) if whole is None else []
            if one.signs is not None and not rotates:
                # Where gains have factors, and are what the name says, signs are of what the gains multiply.
                of_gains = role == Role.QUERY_KEY_SCALE
                signs = name.replace(".scale", ".signs") if of_gains else f"{name}.signs"
                factors.append(Factor(signs, Role.QUERY_KEY if of_gains else role, layer, one.signs))
            for beside in factors:
                alone = beside.action
                copies = (*alone.index, *(() if one.permutation is None else (one.variable,)))
                also = Acting(beside.name, alone.group, self._powers(alone))
                acting[one.variable] = (*acting.get(one.variable, ()), also)
                index[beside.name] = copies
                self._declare(spaces, one, beside.name, alone, copies, beside.role, beside.layer, names, numbered)
        readers = frozenset(self.reading.notes.readers)
        layout = Layout(permutations, acting, index, numbered, readers)
        folded = [one for one in self.found if is_folded and one.rotation is not None]
        gains = {n.weight for one in folded for n in one.norms} | {s.scale for one in folded for s in one.layer_scales}
        return Blueprint(
            self.architecture,
            spaces,
            self._parameters(model, layout, gains),
            inputs_of(self.reading, self.drawn),
            # An output is neither written nor read: only where it moves matters.
            outputs=self._outputs(replace(layout, readers=frozenset())),
            biases=dict(self.reading.notes.biases),
            stacks=self.reading.traced.stacks,
            trials={name: self._trials(*self.owners[name]) for name in spaces},
        )

    def _trials(self, one: Found, action: Action) -> tuple[Trial, ...]:
        """The groups that were tried on a space: on factors inside of it others than on its own coordinates.

        Of factors those on its own stretches: all that were tried there, and on some of these none that holds.
        """
        tried, acting = self.attempts.trials.get(one.variable, []), {s for s, power in action.powers.items() if power}
        is_factor = action.group.is_factor
        return best_of_each(
            trial
            for trial, stretches in tried
            if trial.group.is_factor == is_factor
            and (not is_factor or acting == stretches or (trial.outcome != Outcome.TAKEN and acting & stretches))
        )

    def _rank(self, one: Found, roles: Mapping[Variable, Role], places: Mapping[Variable, Place]) -> tuple[object, ...]:
        place = places[one.variable]
        role = roles[one.variable]
        depth = max((len(action.index) for action in one.actions), default=0)
        outside = place.layer is None
        first = outside and role in (Role.RESIDUAL, Role.EMBEDDING, Role.LATENT)
        return (not first, outside, place.stack, place.layer or 0, ORDER[role], depth)

    def _powers(self, action: Action) -> dict[Stretch, int]:
        """The powers with the sign that what writes is primal and what reads, or a key, is dual."""
        notes = self.reading.notes
        powers = {stretch: power for stretch, power in action.powers.items() if power}
        primal = [power for stretch, power in powers.items() if stretch in notes.queries]
        primal = primal or [-power for stretch, power in powers.items() if stretch in notes.readers]
        primal = primal or [power for stretch, power in powers.items() if stretch in notes.writers]
        primal = primal or list(powers.values())
        return {stretch: power * (1 if primal[0] > 0 else -1) for stretch, power in powers.items()}

    def _declare(
        self,
        spaces: dict[str, Space],
        one: Found,
        name: str,
        action: Action,
        index: tuple[Variable, ...],
        role: Role,
        layer: int | None,
        names: Mapping[Variable, str],
        numbered: frozenset[Variable],
    ) -> None:
        """One space, or one for each place of the numbered ones that it is indexed by."""
        kept = [v for v in index if v not in numbered]
        copies = tuple(v.size for v in kept)
        counts = [v.size for v in index if v in numbered]
        for place in _places(counts):
            full = ".".join([name, *(f"copy{p}" for p in place)])
            spaces[full] = Space(full, action.group, role, layer, tuple(names[v] for v in kept), copies)
            self.owners[full] = one, action

    # --- parts of a blueprint ----------------------------------------------------------------------------------------

    def _parameters(self, model: nn.Module, layout: Layout, gains: set[str]) -> dict[str, tuple[Axis, ...]]:
        """The axes of everything in the model's state, tied names and integers included."""
        read: dict[str, tuple[Axis, ...]] = {}
        for name, dims in self.reading.parameters.items():
            if name in gains:
                read[name] = tuple(Fixed(n) for n in self.reading.traced.state[name].shape)
                continue
            try:
                read[name] = layout.axes(dims)
            except InexpressibleError as error:
                raise _WrongError(*self._culprit(name), str(error)) from error
        same = second_names(model)
        return {
            name: read.get(same.get(name, name)) or tuple(Fixed() for _ in tensor.shape)
            for name, tensor in stacked(model.state_dict(), self.reading.traced.stacks).items()
        }

    def _culprit(self, parameter: str) -> tuple[Found, Action]:
        """The space to give up, its signs first, then its factors, where a parameter cannot be described."""
        through = [one for one in self.found if any(name == parameter for name, _, _ in one.stretches)]
        depth = {one.variable: sum(len(action.index) for action in one.actions) for one in through}
        one = max(through, key=lambda one: (one.signs is not None, bool(one.factors), depth[one.variable]))
        return one, (one.signs or next(iter(one.factors), one.actions[0]))

    def _outputs(self, layout: Layout) -> dict[str, tuple[Axis, ...]]:
        """Axes of all further outputs whose basis an alignment changes."""
        described: dict[str, tuple[Axis, ...]] = {}
        for name, dims in self.reading.outputs.items():
            try:
                axes = tuple(_open(layout.axis(dim)) for dim in dims)
            except InexpressibleError:
                continue
            described[name] = axes
        return {name: axes for name, axes in by_kind(described).items() if any(any(spaces_of(a)) for a in axes)}


def _indexes_first(found: Sequence[Found]) -> list[Found]:
    """The same order, but that a space comes after those that its copies are indexed by.

    Raises:
        _WrongError: two index each other's copies.
    """
    by_variable = {one.variable: one for one in found}
    out: dict[Variable, Found] = {}
    waiting: set[Variable] = set()

    def place(one: Found) -> None:
        if one.variable in out:
            return
        if one.variable in waiting:
            raise _WrongError(one, one.actions[0], "spaces that index each other's copies")
        waiting.add(one.variable)
        for action in one.actions:
            for outer in action.index:
                if outer in by_variable and outer is not one.variable:
                    place(by_variable[outer])
        out[one.variable] = one

    for one in found:
        place(one)
    return list(out.values())


class _WrongError(Exception):
    """A symmetry that was found and cannot be described, or does not hold."""

    def __init__(self, found: Found, action: Action, reason: str) -> None:
        super().__init__(reason)
        self.found, self.action = found, action


def _less(error: _WrongError) -> Action | None:
    """The action of a space to go on without; None where the whole space is to be given up."""
    found, action = error.found, error.action
    if any(action is one for one in found.factors):
        return action
    return found.signs


def _places(counts: Sequence[int]) -> list[tuple[int, ...]]:
    places: list[tuple[int, ...]] = [()]
    for count in counts:
        places = [(*place, i) for place in places for i in range(count)]
    return places


def _open(axis: Axis) -> Axis:
    """An output's axis; what no space touches may have any length."""
    return axis if any(spaces_of(axis)) else Fixed()
