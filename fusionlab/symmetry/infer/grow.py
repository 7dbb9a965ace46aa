"""The blueprint of a real model from that of a small one that stands for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, LayerScale, Norm, Reader, Space, SymmetryError
from fusionlab.symmetry.infer.by_layer import listed_by_layer
from fusionlab.symmetry.infer.inputs import grown_inputs
from fusionlab.symmetry.infer.instances import Instances
from fusionlab.symmetry.infer.outputs import grown_outputs
from fusionlab.symmetry.infer.places import Indices, Place, Places
from fusionlab.symmetry.infer.shrink import Shrunk
from fusionlab.symmetry.infer.sizes import solved_sizes


class UnlikeError(SymmetryError):
    """Layers of one kind whose axes differ.

    Attributes:
        spaces: those that one of the two layers has and the other has not.
    """

    def __init__(self, message: str, spaces: frozenset[str]) -> None:
        super().__init__(message)
        self.spaces = spaces


def grow(small: Blueprint, shrunk: Shrunk, shapes: Mapping[str, tuple[int, ...]]) -> Blueprint:
    """The blueprint of a real model.

    Args:
        small: of the small model, with axes for every name in its state.
        shrunk: how the small model stands for the real one.
        shapes: of every parameter and persistent buffer in the real model's state.

    Raises:
        SymmetryError: a name without a stand-in, layers of one kind with different axes, sizes that shapes and config
            leave open, or shapes that contradict each other.
    """
    if missing := [name for name in shapes if shrunk.layers.get(name) not in small.parameters]:
        raise SymmetryError(f"the small model has no axes that could be those of {missing[0]!r}")
    places = Places({name: shrunk.layers[name] for name in shapes})
    try:
        found = _Grower(small, shrunk, places, shapes).blueprint()
    except UnlikeError:
        raise
    except SymmetryError:
        if (longer := listed_by_layer(small, places)) is None:
            raise
        found = _Grower(longer, shrunk, places, shapes).blueprint()
    after = small.after_folding
    return replace(found, after_folding=None if after is None else grow(after, shrunk, shapes))


@dataclass
class _Grower:
    small: Blueprint
    shrunk: Shrunk
    places: Places
    shapes: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        self.instances = Instances(self.small, self.places)
        self._check_alike()
        self.sizes = solved_sizes(self.small, self.instances, self.places, self.shapes, self.shrunk.hints)

    def blueprint(self) -> Blueprint:
        """The blueprint but for what follows folding."""
        small, instances, places = self.small, self.instances, self.places
        parameters = {
            (real := places.real(name, at)): self._parameter_axes(small.parameters[name], self.shapes[real], at)
            for at, name in places.spread([n for n in small.parameters if n in self._standing], places.of)
        }
        spread_norms = places.spread(small.norms, lambda norm: places.of(norm.weight))
        spread_scales = places.spread(small.layer_scales, lambda scale: places.of(scale.scale))
        biases = {
            places.real(weight, at): places.real(small.biases[weight], at)
            for at, weight in places.spread(list(small.biases), places.of)
        }
        return replace(
            small,
            spaces=dict(self._spaces()),
            parameters=parameters,
            inputs=grown_inputs(small.inputs, self.shrunk),
            notes=tuple(self._notes()),
            outputs=grown_outputs(small, self.shrunk.hints, instances, places, self._axes),
            biases=biases,
            norms=tuple(self._norm(norm, at) for at, norm in spread_norms),
            layer_scales=tuple(
                LayerScale(places.real(s.scale, at), places.real(s.weight, at)) for at, s in spread_scales
            ),
            centred=tuple(self._names(small.centred)),
            seen_key_biases=tuple(self._names(small.seen_key_biases)),
            unseen_means=tuple(
                (places.real(name, at), dim)
                for at, (name, dim) in places.spread(small.unseen_means, lambda mean: places.of(mean[0]))
            ),
            trials={instances.name(name, at): small.trials[name] for at, name in self._spread(list(small.trials))},
            after_folding=None,
        )

    @property
    def _standing(self) -> set[str]:
        return set(self.places.layers.values())

    def _axes(self, axes: tuple[Axis, ...], at: Indices) -> tuple[Axis, ...]:
        return tuple(self.instances.axis(axis, at, self.sizes) for axis in axes)

    def _parameter_axes(self, axes: tuple[Axis, ...], shape: tuple[int, ...], at: Indices) -> tuple[Axis, ...]:
        """The axes of a parameter; a dimension without any space is as long as its shape says."""
        return tuple(
            Fixed(size) if isinstance(axis, Fixed) and axis.size not in (None, 1) else self._axes((axis,), at)[0]
            for axis, size in zip(axes, shape, strict=True)
        )

    def _spread(self, names: list[str]) -> Iterator[tuple[Indices, str]]:
        yield from self.places.spread(names, lambda name: self.instances.place[name])

    def _names(self, spaces: tuple[str, ...]) -> Iterator[str]:
        return (self.instances.name(space, at) for at, space in self._spread(list(spaces)))

    def _spaces(self) -> Iterator[tuple[str, Space]]:
        seen: set[str] = set()
        for at, name in self._spread(list(self.small.spaces)):
            space, real = self.small.spaces[name], self.instances.name(name, at)
            if real in seen:
                raise SymmetryError(f"two spaces of the real model would be called {real!r}")
            seen.add(real)
            outer = [(index, self.instances.at(index, at)) for index in space.index]
            group = replace(space.group, size=self.sizes[name, at])
            if group.size % group.together:
                raise SymmetryError(
                    f"{real!r} would have {group.size} coordinates, of which {group.together} go together"
                )
            yield (
                real,
                Space(
                    real,
                    group,
                    space.role,
                    self.instances.layer(space, at),
                    tuple(self.instances.name(*key) for key in outer),
                    tuple(self.sizes[key] for key in outer),
                ),
            )

    def _notes(self) -> Iterator[str]:
        for note in self.small.notes:
            named = self.instances.in_text(note)
            if not named:
                yield note
                continue
            for at, name in self._spread(named[:1]):
                yield note.replace(name, self.instances.name(name, at))

    def _norm(self, norm: Norm, at: Indices) -> Norm:
        places = self.places
        return Norm(
            places.real(norm.weight, at),
            None if norm.bias is None else places.real(norm.bias, at),
            tuple(self._readers(norm, at)),
            norm.padded,
            norm.offset,
        )

    def _readers(self, norm: Norm, at: Indices) -> Iterator[Reader]:
        """The readers of a norm in one real place: in the same list entries, and in all of lists that it is not in."""
        here, places, start = self.places.of(norm.weight), self.places, 0
        shared = [self._shared(here, places.of(reader.weight)) for reader in norm.readers]
        while start < len(norm.readers):
            end = start
            while end < len(norm.readers) and shared[end] == shared[start]:
                end += 1
            readers = norm.readers[start:end]
            for there, reader in places.spread(readers, lambda reader: places.of(reader.weight), at[: shared[start]]):
                yield Reader(places.real(reader.weight, there), reader.dim, self._rows(reader, there))
            start = end

    def _shared(self, here: Place, there: Place) -> int:
        """The number of list entries that two parameters share; refused where one layer reads what another norms."""
        same = 0
        while same < min(len(here), len(there)) and here[same] == there[same]:
            same += 1
        both = same < min(len(here), len(there)) and here[same].list == there[same].list
        if both and self.places.shrunk(here[same]):
            raise SymmetryError(f"entries of {here[same].list} read each other's norms; expected each to read its own")
        return same

    def _rows(self, reader: Reader, at: Indices) -> tuple[int, int] | None:
        """A stretch of what a fused projection writes, from the segments of its axis."""
        if reader.rows is None:
            return None
        axis = self.small.parameters[reader.weight][1 if reader.dim == 0 else 0]
        parts = axis.parts if isinstance(axis, Concat) else (axis,)
        ends, real_ends = [0], [0]
        for part in parts:
            ends.append(ends[-1] + (part.size or 0))
            real_ends.append(real_ends[-1] + (self.instances.axis(part, at, self.sizes).size or 0))
        if not set(reader.rows) <= set(ends):
            raise SymmetryError(f"the rows {reader.rows} of {reader.weight!r} are no whole segments of its axis")
        first, last = (real_ends[ends.index(row)] for row in reader.rows)
        return first, last

    def _check_alike(self) -> None:
        """See that what is said of one layer of the small model is said of all of its kind."""
        normed = {norm.weight for norm in self.small.norms}
        for name, first in self.shrunk.alike.items():
            if name not in self.small.parameters or first not in self.small.parameters:
                continue
            indices = tuple(step.index for step in self.places.of(name))
            pairs = zip(self.small.parameters[name], self.small.parameters[first], strict=True)
            unlike: set[str] = set()
            for axis, other in pairs:
                if _sizeless(axis) != _sizeless(self._moved(other, indices)):
                    unlike |= set(spaces_of(axis)) ^ set(spaces_of(self._moved(other, indices)))
                    unlike = unlike or {*spaces_of(axis), *spaces_of(other)}
            if unlike or (name in normed) != (first in normed):
                raise UnlikeError(
                    f"{name!r} and {first!r} are of layers of one kind, but their axes differ", frozenset(unlike)
                )

    def _moved(self, axis: Axis, indices: Indices) -> Axis:
        """An axis of one small layer with the names of another one's spaces."""
        match axis:
            case Along():
                return replace(axis, space=self.instances.small_name(axis.space, indices))
            case Per():
                name = self.instances.small_name(axis.space, indices)
                return Per(name, axis.count, self._moved(axis.inner, indices))
            case Concat():
                return Concat(*(self._moved(part, indices) for part in axis.parts))
            case Across():
                blocks = tuple((self.instances.small_name(space, indices), count) for space, count in axis.blocks)
                return Across(blocks, axis.dim, self._moved(axis.inner, indices))
            case Scaled():
                name = self.instances.small_name(axis.space, indices)
                return Scaled(name, axis.power, self._moved(axis.inner, indices))
        return axis


def _sizeless(axis: Axis) -> object:
    """An axis without sizes, which may differ between layers."""
    match axis:
        case Along():
            return axis.space, axis.is_dual
        case Per():
            return axis.space, _sizeless(axis.inner)
        case Concat():
            return tuple(_sizeless(part) for part in axis.parts)
        case Across():
            return axis.spaces, axis.dim, _sizeless(axis.inner)
        case Scaled():
            return axis.space, axis.power, _sizeless(axis.inner)
        case Fixed():
            return axis.size is None or axis.size == 1
    raise TypeError(f"{axis!r} is no axis")
