"""The groups of hidden spaces, from large to small, each accepted only where it leaves a model's outputs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from torch import Tensor

from fusionlab.symmetry.blueprint import Blueprint, LayerScale, Norm, SymmetryError
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import (
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
    Signs,
)
from fusionlab.symmetry.infer.attempts import Attempts
from fusionlab.symmetry.infer.dims import Stretch, Variable, atoms
from fusionlab.symmetry.infer.folds import folds_of
from fusionlab.symmetry.infer.found import Action, Found, drop_contained, is_held, with_copies
from fusionlab.symmetry.infer.linear import null_space, null_space_mod_2
from fusionlab.symmetry.infer.solutions import (
    Solution,
    apart,
    combined,
    differences,
    equations,
    integers,
    is_independent,
    ones,
    read_twice,
    within,
)


class Search:
    """The search for groups that may act on each hidden space of a model that was read.

    Args:
        attempts: on that model.
    """

    def __init__(self, attempts: Attempts) -> None:
        self.attempts, self.reading = attempts, attempts.reading
        self._twice = read_twice(self.reading.strict)
        self._found: dict[Variable, Found] = {}

    def run(self) -> list[Found]:
        """The groups that were found, for every space that something may act on."""
        members, around = self.attempts.members, self.attempts.around
        # What lies inside of blocks is known before these are looked at, which it may hold factors of.
        depths = {variable: max(len(around[s]) for s in members[variable]) for variable in members if variable.size > 1}
        for variable in sorted(depths, key=lambda variable: -depths[variable]):
            self._found[variable] = self._groups_of(variable)
        found = [self._found[variable] for variable in depths]
        drop_contained(found)
        return [one for one in found if one.actions]

    def _groups_of(self, variable: Variable) -> Found:
        """From large to small."""
        stretches = self.attempts.members[variable]
        found = Found(variable, tuple(stretches))
        if len(stretches) < 2 and (variable.is_fixed or stretches[0] not in self._twice):
            return found
        gains = [s for s in stretches if s[0] in self.reading.notes.gains and len(self.reading.parameters[s[0]]) == 1]
        strict = null_space(within(self.reading.strict, stretches), stretches)
        without = [*equations(strict, stretches), *({gain: Fraction(1)} for gain in gains)]
        linear = [v for v in map(ones, null_space(without, stretches)) if v] if strict else []
        everything = dict.fromkeys(stretches, 1)
        if not variable.is_fixed:
            if variable not in self.reading.notes.rectified:
                found.basis = self._linear(variable, linear, set(stretches) - set(gains))
                if found.basis is None:
                    self._rotations(found, gains, strict)
                if found.basis is not None:
                    return found
            found.permutation = self.attempts.attempt(Permutation(variable.size), variable, everything)
        free = [integers(v) for v in (null_space(without, stretches) if strict else [])]
        # Powers of 1 and -1 first, which have more copies where several layers share what else acts.
        candidates = [*linear, *differences(linear), *free, *differences(free)]
        candidates = [powers for place, powers in enumerate(candidates) if powers not in candidates[:place]]
        # A basis that all blocks share holds the factor that they share: then each has none for itself.
        inside = [a for one in self._found.values() for a in one.actions if self._is_inside(one, variable)]
        inside += with_copies(variable, self._found.values())
        found.held = [powers for powers in candidates if is_held(powers, inside)]
        self._factors(found, candidates)
        # Behind a ReLU first, since few signs pass it.
        is_rectified = variable in self.reading.notes.rectified
        if is_rectified:
            self._through_gains(found, gains, strict)
        self._signs(found, gains)
        if not is_rectified and found.rotation is None:
            self._through_gains(found, gains, strict)
        return found

    def _is_inside(self, one: Found, variable: Variable) -> bool:
        """A space lies inside of the blocks of another."""
        return any(variable in self.attempts.around[stretch] for stretch in one.stretches)

    def _through_gains(self, found: Found, gains: Sequence[Stretch], strict: Sequence[Solution]) -> None:
        """Factors that gains take up against what reads or writes them, one for each gain; of queries' against keys'.

        Where nothing permutes coordinates, those of gains alone.
        """
        is_signed = found.variable not in self.reading.notes.rectified
        for powers in apart(strict):
            is_alone = {stretch[0] for stretch in powers} <= self.reading.notes.gains
            is_free = found.permutation is not None or is_alone
            if is_free and not powers.keys().isdisjoint(gains) and not self._is_told(powers):
                self._scale(found, powers, is_signed)

    def _is_told(self, powers: Mapping[Stretch, int]) -> bool:
        """A further output, such as a hidden state behind a norm, would be stretched."""
        along = (atom for dims in self.reading.outputs.values() for dim in dims for atom in atoms(dim))
        return any(sum(times * powers.get(s, 0) for s, times in atom.exponent.items() if s[2] >= 0) for atom in along)

    def _linear(self, variable: Variable, linear: list[dict[Stretch, int]], needed: set[Stretch]) -> Action | None:
        """Every invertible matrix, on all stretches that are no gains."""
        for powers in combined(linear):
            if set(powers) >= needed and (action := self.attempts.attempt(Invertible(variable.size), variable, powers)):
                return action
        return None

    def _factors(self, found: Found, candidates: Sequence[dict[Stretch, int]]) -> None:
        """Planes of rotary positions, or sets of factors for each coordinate: those of either sign first.

        Behind a ReLU these are tried where another solution shares a stretch, as of a gate's values.
        """
        variable = found.variable
        for powers in candidates if variable.is_fixed else ():
            for is_interleaved in (False, True):
                group = Rotary(2 * variable.size, interleaved=is_interleaved)
                if found.basis is None and max(map(abs, powers.values())) == 1:
                    found.basis = self.attempts.attempt(group, variable, powers)
        is_rectified = variable in self.reading.notes.rectified
        for is_signed in (True, False):
            failed: list[dict[Stretch, int]] = []
            for powers in candidates:
                shares = any(other != powers and not other.keys().isdisjoint(powers) for other in candidates)
                # What with factors that hold would make one that does not, does not hold.
                is_open = all(is_independent(powers, [*found.scales, one], modulo_two=False) for one in failed)
                if (
                    (shares or not (is_rectified and is_signed))
                    and is_open
                    and not self._scale(found, powers, is_signed)
                ):
                    failed.append(powers)

    def _scale(self, found: Found, powers: dict[Stretch, int], is_signed: bool) -> bool:
        """A factor for each coordinate, inside of permutations if there are any; true if it is one, or was before.

        Where no permutations are, it is the one group of the coordinates.
        """
        is_unit, variable = found.permutation is not None, found.variable
        if found.basis is not None or not is_independent(powers, found.scales, modulo_two=False):
            return True
        # A sign that other factors and signs make already is no further one.
        is_signed = is_signed and is_independent(powers, found.turning, modulo_two=True)
        action = self.attempts.attempt(Scale(1 if is_unit else variable.size, signed=is_signed), variable, powers)
        if is_unit and action is not None and not found.admits(action):
            return False
        if is_unit:
            found.factors += [action] if action is not None else []
        else:
            found.basis = action
        return action is not None

    def _signs(self, found: Found, gains: list[Stretch]) -> None:
        """A sign for each coordinate; gains, which those of a norm's output keep, have none."""
        variable = found.variable
        if found.basis is not None and isinstance(found.basis.group, Rotary):
            return
        for chosen in self._parities(found.stretches, gains):
            powers = dict.fromkeys(sorted(chosen), 1)
            is_new = found.basis is None or found.basis.powers.keys().isdisjoint(powers)
            is_new = is_new and is_independent(powers, found.turning, modulo_two=True)
            # Where a positive factor acts, turning the same round was tried with it.
            is_new = is_new and all(action.powers.keys() != powers.keys() for action in found.factors)
            if found.signs is None and is_new:
                group = Signs(variable.size if found.permutation is None else 1)
                action = self.attempts.attempt(group, variable, powers)
                found.signs = action if action is not None and found.admits(action) else None

    def _parities(self, stretches: Sequence[Stretch], gains: Sequence[Stretch]) -> list[frozenset[Stretch]]:
        """Stretches that rotations and signs may act on together."""
        system = [*within(self.reading.relaxed, stretches), *({gain: 1} for gain in gains)]
        return null_space_mod_2(system, stretches)

    def _rotations(self, found: Found, gains: list[Stretch], strict: list[Solution]) -> None:
        """Rotations, after gains are folded if there are any."""
        variable, stretches = found.variable, found.stretches
        if variable.size < 3:
            return
        folds = folds_of(self.reading, variable, gains, self._by_rows(stretches) or strict) if gains else None
        state: Mapping[str, Tensor] | None = None if gains else self.attempts.state
        if folds is not None:
            state = self._folded(*folds)
        if state is None:
            return
        parities = self._parities(stretches, gains)
        whole = frozenset().union(*parities)
        for chosen in dict.fromkeys([whole, *parities]):
            for group in (Orthogonal(variable.size), OrthogonalFixingOnes(variable.size)):
                if len(chosen) > (len(stretches) > 1) and (
                    action := self.attempts.attempt(group, variable, dict.fromkeys(chosen, 1), state)
                ):
                    if folds is None:
                        found.basis = action
                    else:
                        found.rotation, (found.norms, found.layer_scales) = action, folds
                    return

    def _by_rows(self, stretches: Sequence[Stretch]) -> list[Solution]:
        """Powers where rows of one weight that read by themselves have powers of their own; empty if there are none."""
        notes = self.reading.notes
        parts = {part: whole for part, (whole, _) in notes.parts.items() if whole in stretches}
        if not parts:
            return []
        split = set(parts.values()) - notes.whole
        unknowns = [*(s for s in stretches if s not in split), *(p for p, whole in parts.items() if whole in split)]
        return null_space(within(self.reading.strict, unknowns), unknowns)

    def _folded(self, norms: tuple[Norm, ...], layer_scales: tuple[LayerScale, ...]) -> Mapping[str, Tensor] | None:
        """The same function with these gains one; None where it is another."""
        described = Blueprint(
            "folded", {}, {}, biases=self.reading.notes.biases, norms=norms, layer_scales=layer_scales
        )
        try:
            state = fold(self.attempts.state, described)
        except (SymmetryError, RuntimeError, KeyError):
            return None
        return state if self.attempts.same(state) else None
