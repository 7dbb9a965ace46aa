"""Matched twins of checkpoint folders, made and written a part of the parameters at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusionlab.checkpoints.conversions import Group
from fusionlab.checkpoints.weightless import Weightless
from fusionlab.dtypes import in_type, widest
from fusionlab.finite import all_finite, not_finite
from fusionlab.matching.parts import Part
from fusionlab.matching.weights import squared_distance
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.streaming.part_files import PartFiles
from fusionlab.streaming.pipeline import in_order, workers
from fusionlab.streaming.resuming import Tally
from fusionlab.streaming.shards import Writer
from fusionlab.streaming.stored import Reader, StoredModel, TensorSpec
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.types import State

# Numbers of all parts in work together, those of every model counted; a larger part is in work alone.
MOST = 2**27


@dataclass(frozen=True)
class Matched:
    """Facts about a pair that was matched.

    Attributes:
        blueprint: in the gauge.
        source: by part, the alignment of the source.
        anchor: by part, that of the anchor, which is its gauge.
        distances: of the two, each number counted once: as they come, in the gauge, and matched.
    """

    blueprint: Blueprint
    source: Sequence[Alignment]
    anchor: Sequence[Alignment]
    distances: tuple[float, float, float]

    @property
    def alignment(self) -> Alignment:
        """The alignment of the source as a whole."""
        return _whole(self.blueprint, self.source)

    @property
    def of_anchor(self) -> Alignment:
        """The alignment of the anchor as a whole."""
        return _whole(self.blueprint, self.anchor)


def planned(model: StoredModel, dtype: torch.dtype | None) -> dict[str, TensorSpec]:
    """The type and shape of every tensor of a twin.

    Args:
        model: whose.
        dtype: to write all floating-point numbers in; each in its own if None.
    """
    return {
        name: TensorSpec(dtype if dtype is not None and stored.dtype.is_floating_point else stored.dtype, stored.shape)
        for name, stored in model.tensors.items()
    }


class PartReader:
    """The parameters of one model by the names of its class, a part at a time.

    Args:
        reader: of its files.
        made: the model without weights, with what of the files becomes each parameter.
        dtype: that everything is at least as wide as, or None.
    """

    def __init__(self, reader: Reader, made: Weightless, dtype: torch.dtype | None = None) -> None:
        self.reader, self.names, self.groups, self.dtype = reader, made.names, made.groups, dtype

    def read(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Some parameters; those that are tied are one tensor.

        Raises:
            InputError: one holds NaN or an infinity, or a file has become shorter.
        """
        made: dict[str, Tensor] = {}
        for group in self._groups(names):
            made |= group.read({name: self._stored(name) for name in group.stored})
        return {name: made[self.names[name]] for name in names}

    def write(self, state: Mapping[str, Tensor], writer: Writer) -> dict[str, Tensor]:
        """Write parameters as they are in the files.

        Args:
            state: a part of a twin; of what is made of the same tensors, all.
            writer: of its files.

        Returns:
            The part with the numbers that were written, in the types that it came in.

        Raises:
            InputError: a number that the type to write in cannot hold.
        """
        held = {self.names[name]: tensor for name, tensor in state.items()}
        kept: dict[str, Tensor] = {}
        for group in self._groups(state):
            rounded = {}
            for name, tensor in group.written(held).items():
                written = in_type(name, tensor, writer.tensors[name].dtype)
                writer.write(name, 0, written.flatten())
                rounded[name] = written.to(tensor.dtype)
            kept |= group.read(rounded)
        return {name: kept[self.names[name]] for name in state}

    def sizes(self, names: Iterable[str], writer: Writer) -> dict[str, int]:
        """The bytes of the tensors that some parameters are written in."""
        return {name: writer.tensors[name].size for group in self._groups(names) for name in group.stored}

    def counts(self) -> dict[str, int]:
        """The numbers of each parameter; of what several are made of, for the first."""
        tensors = self.reader.model.tensors
        return {group.made[0]: sum(tensors[n].count for n in group.stored) for group in self.groups.values()}

    def _groups(self, names: Iterable[str]) -> list[Group]:
        """The groups of tensors in the files that some parameters are made of, each once."""
        found = {group.made[0]: group for group in (self.groups[self.names[name]] for name in names)}
        return list(found.values())

    def _stored(self, name: str) -> Tensor:
        """A tensor of the files."""
        stored = self.reader.model.tensors[name]
        tensor = self.reader.read(name, 0, stored.count).reshape(stored.shape)
        if tensor.is_floating_point():
            if not all_finite(tensor):
                raise not_finite(self.reader.model.source, name, int((~torch.isfinite(tensor)).sum()), tensor.numel())
            if self.dtype is not None:
                tensor = tensor.to(widest([tensor.dtype, self.dtype]))
        return tensor


@dataclass(frozen=True)
class TwinFiles:
    """The weight files of a twin.

    Attributes:
        writer: of them.
        tally: of what is complete of them.
    """

    writer: Writer
    tally: Tally


def match_parts(
    described: tuple[Blueprint, Sequence[Part]],
    source: PartReader,
    anchor: PartReader,
    files: tuple[TwinFiles, TwinFiles | None],
    advance: Callable[[int], object] = lambda _: None,
    known: PartFiles | None = None,
    workplace: Workplace = HERE,
) -> Matched:
    """Match a model to an anchor, and write its twin and that of the anchor.

    Args:
        described: the blueprint in the gauge, and its parts.
        source: the model that is matched.
        anchor: of the same class and sizes.
        files: of the source's twin, and of the anchor's or None where none is written.
        advance: is told how many bytes have been written since it was called last.
        known: what was found of parts, where a later call may go on with the twins.
        workplace: whose device parts are matched on.

    Raises:
        InputError: numbers that are NaN or infinite, or that the type to write in cannot hold.
    """
    blueprint, parts = described
    models = (source, anchor)
    sides = [(model, side) for model, side in zip(models, files, strict=True) if side is not None]

    @torch.no_grad()
    def work(numbered: tuple[int, Part]) -> tuple[list[Alignment], list[float], list[dict[str, int]]]:
        index, part = numbered
        names = part.blueprint.names
        sizes = [model.sizes(names, side.writer) for model, side in sides]
        is_written = all(side.tally.is_written(own) for own, (_, side) in zip(sizes, sides, strict=True))
        if known is not None and (found := known.get(index, part.blueprint)) is not None:
            # Complete files hold what these alignments moved; another machine might find others.
            for model, alignment, side in () if is_written else zip(models, found[0], files, strict=True):
                if side is not None:
                    model.write(alignment.apply(model.read(names)), side.writer)
            return *found, sizes
        states: list[State] = [workplace.brought(model.read(names)) for model in models]
        gauges, alignments = part.matched(states, anchor=1)
        counted = [name for name in once(names, source.names) if states[0][name].is_floating_point()]
        squares = [squared_distance(states[0], states[1], counted)]
        if part.gauge:
            in_gauge = [gauge.apply(state) for gauge, state in zip(gauges, states, strict=True)]
            squares.append(squared_distance(in_gauge[0], in_gauge[1], counted))
            del in_gauge
        for place, (model, alignment, side) in enumerate(zip(models, alignments, files, strict=True)):
            states[place] = workplace.taken(alignment.apply(states[place]))
            if side is not None:
                states[place] = model.write(states[place], side.writer)
        alignments = [workplace.found(alignment) for alignment in alignments]
        squares.append(squared_distance(states[0], states[1], counted))
        if known is not None:
            known.put(index, alignments, squares)
        return alignments, squares, sizes

    found: tuple[list[Alignment], list[Alignment]] = ([], [])
    totals: list[float] = []
    counts = source.counts()
    with workers() as pool:
        numbered = enumerate(parts)
        for alignments, squares, sizes in in_order(pool, work, numbered, lambda part: _size(counts, part[1]), MOST):
            for held, alignment in zip(found, alignments, strict=True):
                held.append(alignment)
            totals = [a + b for a, b in zip(totals or [0.0] * len(squares), squares, strict=True)]
            for written, (_, side) in zip(sizes, sides, strict=True):
                side.tally.add(written)
                advance(sum(written.values()))
    lengths = [math.sqrt(total) for total in totals]
    return Matched(blueprint, *found, (lengths[0], lengths[-2], lengths[-1]))


@torch.no_grad()
def write_moved(
    model: PartReader, alignments: Sequence[Alignment], files: TwinFiles, advance: Callable[[int], object]
) -> None:
    """Write a twin of a model by alignments that are known, one for each part."""
    for alignment in alignments:
        names = alignment.blueprint.names
        sizes = model.sizes(names, files.writer)
        if not files.tally.is_written(sizes):
            model.write(alignment.apply(model.read(names)), files.writer)
            files.tally.add(sizes)
        advance(sum(sizes.values()))


class Moved:
    """The parameters of a model's twin in float64, made when they are asked for; those of one part are held.

    Args:
        model: whose, unmoved.
        alignments: one for each part.
    """

    def __init__(self, model: PartReader, alignments: Sequence[Alignment]) -> None:
        self.model = model
        self.by_name = {name: alignment for alignment in alignments for name in alignment.blueprint.names}
        self.held: Mapping[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, name: str) -> Tensor:
        """A parameter of the twin."""
        if name not in self.held:
            self.held = {}
            alignment = self.by_name[name]
            state = self.model.read(alignment.blueprint.names)
            self.held = alignment.apply({n: t.double() if t.is_floating_point() else t for n, t in state.items()})
        return self.held[name]


def _whole(blueprint: Blueprint, parts: Sequence[Alignment]) -> Alignment:
    """One alignment of those of all parts."""
    return Alignment(blueprint, {space: element for part in parts for space, element in part.elements.items()})


def once(names: Sequence[str], stored: Mapping[str, str]) -> list[str]:
    """One name of every parameter.

    Args:
        names: of them.
        stored: for each name, the one of the tied ones that is stored.
    """
    return list({stored[name]: name for name in reversed(names)}.values())


def parts_memory(counts: Mapping[str, int], parts: Iterable[Part]) -> int:
    """About how many bytes matching by parts holds at most, beside torch itself.

    Args:
        counts: numbers of each parameter.
        parts: of the models.
    """
    return 4 * max(MOST, *(_size(counts, part) for part in parts))


def _size(counts: Mapping[str, int], part: Part) -> int:
    """About how many numbers of 4 bytes matching a part holds in memory: two models, their twins, and products."""
    return 4 * sum(counts.get(name, 0) for name in part.blueprint.names)
