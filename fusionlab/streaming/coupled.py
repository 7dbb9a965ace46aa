"""Matching of spaces that meet on one parameter, such as the residual stream, without a model in memory.

Both models are brought into their gauge a part at a time and lie on the disk then, in float32; passes over them
accumulate correlations, each of one space, and move the source where it lies. The numbers are those of matching in
memory: the same engine runs on mapped tensors (`fusionlab.streaming.scratch`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fusionlab.matching.blocks import blocks
from fusionlab.matching.options import ANNEALED, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.parts import Part
from fusionlab.matching.starts.registry import find_start
from fusionlab.matching.weights import squared_distance, workable
from fusionlab.streaming.part_files import PartFiles
from fusionlab.streaming.scratch import Scratch, table_bytes
from fusionlab.streaming.twins import Matched, PartReader, TwinFiles, once
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.stacks import entries_of

# Of what is found of a whole pair, among files of parts.
_WHOLE = 0


class Readable(Protocol):
    """A model whose parameters are read some at a time.

    Attributes:
        names: for every name in its state dict, the one of the tied ones that is stored.
    """

    @property
    def names(self) -> Mapping[str, str]: ...

    def read(self, names: Sequence[str]) -> Mapping[str, Tensor]:
        """Some parameters, all real numbers in any types."""


@torch.no_grad()
def match_coupled(
    described: tuple[Blueprint, Sequence[Part]],
    options: MatchOptions,
    models: tuple[PartReader, PartReader],
    files: tuple[TwinFiles, TwinFiles | None],
    folder: Path,
    advance: Callable[[int], object] = lambda _: None,
    known: PartFiles | None = None,
) -> Matched:
    """Match a model to an anchor, and write its twin and that of the anchor.

    Args:
        described: the blueprint in the gauge, and the parts that models are brought into it by.
        options: what is matched and how.
        models: the one that is matched, and the anchor.
        files: of the source's twin, and of the anchor's or None where none is written.
        folder: that does not exist, for numbers that are removed again; see `coupled_bytes`.
        advance: is told how many bytes have been written since it was called last.
        known: what was found of the pair, where a later call may go on with the twins.

    Raises:
        InputError: numbers that are NaN or infinite, or that the type to write in cannot hold.
        OSError: the disk is full.
    """
    blueprint, parts = described
    found = None if known is None else known.get(_WHOLE, blueprint)
    if found is None:
        with Scratch(folder) as scratch:
            found = find_coupled(described, options, models, scratch)
        if known is not None:
            known.put(_WHOLE, *found)
    alignments, squares = found
    own = [[of_part(alignment, part.blueprint) for part in parts] for alignment in alignments]
    matched = 0.0
    for part, *moves in zip(parts, *own, strict=True):
        names = part.blueprint.names
        moved = [move.apply(model.read(names)) for move, model in zip(moves, models, strict=True)]
        for place, (model, side) in enumerate(zip(models, files, strict=True)):
            if side is not None:
                written = model.sizes(names, side.writer)
                moved[place] = model.write(moved[place], side.writer)
                if not side.tally.is_written(written):
                    side.tally.add(written)
                advance(sum(written.values()))
        matched += squared_distance(moved[0], moved[1], _counted(names, models[0], moved[0]))
    lengths = [math.sqrt(square) for square in (*squares, matched)]
    return Matched(blueprint, own[0], own[1], (lengths[0], lengths[-2], lengths[-1]))


@torch.no_grad()
def find_coupled(
    described: tuple[Blueprint, Sequence[Part]],
    options: MatchOptions,
    models: tuple[Readable, Readable],
    scratch: Scratch,
) -> tuple[list[Alignment], list[float]]:
    """The alignments of both models, and their squared distances as they come and in the gauge.

    Args:
        described: the blueprint in the gauge, and the parts that models are brought into it by.
        options: what is matched and how.
        models: the one that is matched, and the anchor.
        scratch: that both lie in while they are matched, in float32 or wider.
    """
    blueprint, parts = described
    touched = blueprint.touching(space.name for space in options.select(blueprint))
    states: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    elements: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    squares = [0.0, 0.0]
    for part in parts:
        names = part.blueprint.names
        read = [model.read(names) for model in models]
        counted = _counted(names, models[0], read[0])
        squares[0] += squared_distance(read[0], read[1], counted)
        gauges, _ = part.matched(read, anchor=1)
        for place, gauge in enumerate(gauges):
            read[place] = gauge.apply(read[place])
            elements[place].update(gauge.elements)
            own = blueprint.stacked(read[place])
            states[place].update({name: scratch.kept(workable(own[name])) for name in own if name in touched})
        squares[1] += squared_distance(read[0], read[1], counted)
    ordered = [{name: state[name] for name in touched} for state in states]
    pair = Pair(ordered[0], ordered[1], blueprint, keeper=scratch)
    alignment = find_start(options.start).function(pair, options)
    gauges = [Alignment(blueprint, one) for one in elements]
    return [alignment.compose(gauges[0]), gauges[1]], squares


def _counted(names: Sequence[str], model: Readable, state: Mapping[str, Tensor]) -> list[str]:
    """One name of every parameter that a distance counts."""
    return [name for name in once(names, model.names) if state[name].is_floating_point()]


def of_part(alignment: Alignment, blueprint: Blueprint) -> Alignment:
    """The part of an alignment of a whole model that acts on a part of it.

    Args:
        alignment: of the whole model.
        blueprint: of the part.
    """
    return Alignment(blueprint, {name: e for name, e in alignment.elements.items() if name in blueprint.spaces})


def coupled_bytes(
    counts: Mapping[str, int], blueprint: Blueprint, options: MatchOptions, dtype: torch.dtype = torch.float32
) -> int:
    """The bytes on the disk that matching takes beside the twins, at most about.

    Args:
        counts: numbers of each parameter, by every name.
        blueprint: of the models, in the gauge.
        options: what is matched and how.
        dtype: that models lie there in.
    """
    spaces = options.select(blueprint)
    touched = entries_of(blueprint.touching(space.name for space in spaces), blueprint.stacks)
    numbers = 2 * sum(counts.get(name, 0) for name in touched)
    return dtype.itemsize * numbers + (table_bytes(blocks(spaces, blueprint)) if options.start == ANNEALED else 0)


def coupled_memory(counts: Mapping[str, int], blueprint: Blueprint, parts: Iterable[Part]) -> int:
    """About how many bytes of memory matching holds at most, beside torch itself: a part, or products of one space.

    Args:
        counts: numbers of each parameter.
        blueprint: of the models, in the gauge.
        parts: that they are brought into the gauge by.
    """
    largest = max((sum(counts.get(name, 0) for name in part.blueprint.names) for part in parts), default=0)
    squares = max((space.group.size**2 for space in blueprint.spaces.values()), default=0)
    return 4 * max(6 * largest, 8 * squares)
