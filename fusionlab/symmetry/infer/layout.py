"""From types to axes: the words in which a blueprint says where a space runs through a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, scaled, spaces_of
from fusionlab.symmetry.groups import Group, Orthogonal, Rotary, Signs
from fusionlab.symmetry.infer.dims import Atom, Dim, Stretch, Sum, Variable, parity, size_of


class InexpressibleError(Exception):
    """A space runs through a parameter in a way that no axis describes."""


@dataclass(frozen=True)
class Acting:
    """The action on the coordinates of a space, permutations apart.

    Attributes:
        space: its name.
        group: acting on one copy.
        powers: by stretch, +1 where it acts as it is and -1 where by its dual, of a factor any power; left out where it
            does not act.
    """

    space: str
    group: Group
    powers: Mapping[Stretch, int]


@dataclass(frozen=True)
class Layout:
    """Names and groups for variables, and the axes that follow.

    Attributes:
        permutations: by variable, the name of the space whose permutations move its coordinates.
        acting: by variable, what else acts; on one stretch any number of factors, or one group that is none.
        index: by space, the variables that its copies are indexed by.
        numbered: variables that index copies although nothing may permute them: each copy is a space of its own.
        readers: stretches that contract with what they read.
    """

    permutations: Mapping[Variable, str]
    acting: Mapping[Variable, tuple[Acting, ...]]
    index: Mapping[str, tuple[Variable, ...]] = field(default_factory=dict)
    numbered: frozenset[Variable] = frozenset()
    readers: frozenset[Stretch] = frozenset()

    def axes(self, dims: Sequence[Dim]) -> tuple[Axis, ...]:
        """The axes of a parameter.

        Raises:
            InexpressibleError: there are none for these types.
        """
        own = [self.axis(dim) for dim in dims]
        return tuple(self._across(axis, position, dims) for position, axis in enumerate(own))

    def _across(self, axis: Axis, position: int, dims: Sequence[Dim]) -> Axis:
        """The axis, its copies indexed by the blocks of another dimension where they are none of its own."""
        inside = set(spaces_of(axis))
        wanted = {variable for space in inside for variable in self.index.get(_plain(space), ())}
        if not all(self._numbered_inside(dims[position], v) for v in wanted & self.numbered):
            raise InexpressibleError("numbered copies along another dimension")
        missing = {v for v in wanted - self.numbered if self.permutations.get(v) not in inside}
        if not missing:
            return axis
        for other, dim in enumerate(dims):
            leading = leading_atoms(dim)
            if other != position and missing <= set(leading):
                last = max(leading.index(v) for v in missing)
                if any(v not in self.permutations for v in leading[: last + 1]):
                    break
                blocks = tuple((self.permutations[v], v.size) for v in leading[: last + 1])
                return Across(blocks, other, axis)
        raise InexpressibleError("a space whose copies are indexed by nothing in the parameter")

    def _numbered_inside(self, dim: Dim, variable: Variable) -> bool:
        return any(
            (isinstance(f, Atom) and f.variable is variable)
            or (isinstance(f, Sum) and any(self._numbered_inside(part, variable) for part in f.parts))
            for f in dim
        )

    def axis(self, dim: Dim, copy: tuple[tuple[Variable, int], ...] = ()) -> Axis:
        """The axis of one dimension.

        Args:
            dim: its type, resolved.
            copy: by numbered variable around it, at which place it is.
        """
        if not dim:
            return Fixed(1)
        first, rest = dim[0], dim[1:]
        if isinstance(first, Sum):
            return self._segments(first, rest, copy)
        if not isinstance(first, Atom):
            raise InexpressibleError("a type that depends on another dimension")
        variable = first.variable
        found = self._acting_along(first)
        whole = next(((acting, power) for acting, power in found if not acting.group.is_factor), None)
        if whole is not None:
            return self._whole(*whole, first, rest, copy)
        if variable in self.numbered:
            return joined(self.axis(rest, (*copy, (variable, i))) for i in range(variable.size))
        inner = self.axis(rest, copy)
        if found:
            # Places that nothing acts on are multiplied one by one.
            count = size_of(rest) if isinstance(inner, Fixed) else 1
            inner = Fixed(1) if isinstance(inner, Fixed) else inner
            for acting, power in reversed(found):
                inner = scaled(self._named(acting.space, copy), self._signed(acting, power, first), inner)
            inner = inner if count == 1 else Concat(*[inner] * count)
        if variable in self.permutations:
            name = self._named(self.permutations[variable], copy)
            single = isinstance(inner, Fixed) and inner.size == 1
            return Along(name, variable.size, self._reads(first)) if single else Per(name, variable.size, inner)
        return joined([inner] * variable.size)

    def _whole(self, acting: Acting, power: int, atom: Atom, rest: Dim, copy: tuple[tuple[Variable, int], ...]) -> Axis:
        """A space with a basis of its own, which nothing lies inside of."""
        size = atom.variable.size
        name = self._named(acting.space, copy)
        if isinstance(acting.group, Rotary) and acting.group.interleaved and size_of(rest) == 2:
            return Along(name, 2 * size, is_dual=power < 0)
        if rest or isinstance(acting.group, Rotary):
            raise InexpressibleError("a space with a basis around another")
        return Along(name, size, is_dual=self._signed(acting, power, atom) < 0)

    def _acting_along(self, atom: Atom) -> list[tuple[Acting, int]]:
        """The actions along an atom beside permutations, and their powers."""
        found = [(acting, power) for acting in self.acting.get(atom.variable, ()) if (power := _power(acting, atom))]
        if len(found) > 1 and not all(acting.group.is_factor for acting, _ in found):
            raise InexpressibleError("two groups along one stretch")
        if any(abs(power) > 1 and not acting.group.is_factor for acting, power in found):
            raise InexpressibleError("a power of a group")
        return found

    def _signed(self, acting: Acting, power: int, atom: Atom) -> int:
        """The power, negative for a reader where both sides agree, since such powers are told modulo two."""
        if isinstance(acting.group, Orthogonal | Signs):
            return -1 if self._reads(atom) else 1
        return power

    def _reads(self, atom: Atom) -> bool:
        return not self.readers.isdisjoint(atom.exponent)

    def _segments(self, sum_: Sum, rest: Dim, copy: tuple[tuple[Variable, int], ...]) -> Axis:
        parts, out, position = sum_.parts, list[Axis](), 0
        while position < len(parts):
            pair = parts[position : position + 2]
            plane = self._plane(pair) if not rest and len(pair) == 2 else None
            if plane is not None:
                acting, power, size = plane
                out.append(Along(self._named(acting.space, copy), 2 * size, is_dual=power < 0))
                position += 2
            else:
                out.append(self.axis(parts[position] + rest, copy))
                position += 1
        return joined(out)

    def _plane(self, pair: Sequence[Dim]) -> tuple[Acting, int, int] | None:
        """The rotary planes whose two coordinates are two halves."""
        atoms = [part[0] for part in pair if len(part) == 1 and isinstance(part[0], Atom)]
        if len(atoms) != 2 or atoms[0].variable is not atoms[1].variable:
            return None
        found, other = map(self._acting_along, atoms)
        if len(found) != 1 or found != other:
            return None
        acting, power = found[0]
        if not isinstance(acting.group, Rotary) or acting.group.interleaved:
            return None
        return acting, power, atoms[0].variable.size

    def _named(self, space: str, copy: tuple[tuple[Variable, int], ...]) -> str:
        """The name of a space's copy, where its copies have names of their own."""
        wanted = [v for v in self.index.get(space, ()) if v in self.numbered]
        places = dict(copy)
        if any(v not in places for v in wanted):
            raise InexpressibleError("numbered copies along another dimension")
        return ".".join([space, *(f"copy{places[v]}" for v in wanted)])


def leading_atoms(dim: Dim) -> list[Variable]:
    """The spaces that a dimension is blocks of, outermost first, as far as they are spaces."""
    found = []
    for factor in dim:
        if not isinstance(factor, Atom):
            break
        found.append(factor.variable)
    return found


def _plain(space: str) -> str:
    """A space's name without the number of its copy."""
    return space.split(".copy", maxsplit=1)[0]


def _power(acting: Acting, atom: Atom) -> int:
    """The power by which a space acts along an atom: what its stretches' powers add up to."""
    if isinstance(acting.group, Orthogonal | Signs):
        # Of outputs the powers modulo two are told under names of their own.
        told = {s: times for s, times in atom.exponent.items() if s[2] < 0} or atom.exponent
        return sum(times * acting.powers.get(s if s[2] >= 0 else parity(s), 0) for s, times in told.items()) % 2
    return sum(times * acting.powers.get(stretch, 0) for stretch, times in atom.exponent.items())


def joined(parts: Iterable[Axis]) -> Axis:
    """Segments laid one after the other, fixed ones as one."""
    out: list[Axis] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Concat) else (part,):
            last = out[-1] if out else None
            if isinstance(last, Fixed) and isinstance(piece, Fixed) and last.size and piece.size:
                out[-1] = Fixed(last.size + piece.size)
            else:
                out.append(piece)
    return out[0] if len(out) == 1 else Concat(*out)
