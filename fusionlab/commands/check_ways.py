"""Merge methods and matchings that some models admit, what each needs, and why others are out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rich.table import Table

from fusionlab.checkpoints.weightless import Weightless
from fusionlab.commands import match_stream
from fusionlab.commands.match_parts import NotByPartsError, looks_at_parts, parts_of
from fusionlab.errors import InputError
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.recipe import meanings, presets
from fusionlab.merging import find_method, methods
from fusionlab.merging.method import NEEDS
from fusionlab.printing import size_words
from fusionlab.streaming import memory_of
from fusionlab.streaming.coupled import coupled_bytes, coupled_memory
from fusionlab.streaming.part_memory import memory_by_parts, memory_of_whole
from fusionlab.streaming.twins import parts_memory
from fusionlab.symmetry import Blueprint

Possible = Literal["yes", "with a base model", "with data", "no"]
PARTS, WHOLE = "a part at a time", "whole models"
# Of methods that look at statistics.
_BY_FILES = "; a part at a time with files of statistics, whole models with data"


@dataclass(frozen=True)
class Way:
    """A merge method or a matching.

    Attributes:
        name: of it.
        possible: whether these models admit it.
        held: what is in memory at a time, in words; nothing where it is not possible.
        memory: bytes of models, or of pieces of them, that are held; None where it is not possible.
        why: what is missing, or rules it out.
        disk: bytes of numbers on the way that lie beside the output meanwhile, of models so large that they
            are matched a part at a time.
    """

    name: str
    possible: Possible
    held: str
    memory: int | None
    why: str = ""
    disk: int = 0


@dataclass(frozen=True)
class Given:
    """Facts about models that fit each other.

    Attributes:
        sizes: bytes of each, of a base model that was given among them.
        models: the number of models that are merged.
        shapes: of all tensors of the models.
        has_base: a base model was given, or is the one that all are adapters of.
        streams: for ``number`` and ``parameter``, whether files are merged piece by piece by methods of that unit.
        blueprint: of all; or the sentence that says why there is none.
        made: the models without weights, where a part at a time may be looked at.
        matched_by_parts: whether matching may go a part at a time too.
    """

    sizes: tuple[int, ...]
    models: int
    shapes: frozenset[tuple[int, ...]]
    has_base: bool
    streams: Mapping[str, bool]
    blueprint: Blueprint | str
    made: Mapping[str, Weightless] | None
    matched_by_parts: bool


def merge_ways(given: Given) -> list[Way]:
    """All merge methods, as `merge` takes or refuses them."""
    return [_merge_way(name, given) for name in methods()]


def _merge_way(name: str, given: Given) -> Way:
    method = find_method(name)
    streams = given.streams.get(method.unit, False)
    held, memory = WHOLE, memory_of_whole(given.sizes, given.models, method)
    if streams:
        held = "pieces" if method.unit == "number" else "parameters"
        memory = min(memory, memory_of(given.shapes, given.models, method))
    elif given.made and given.streams["number"] and not isinstance(given.blueprint, str):
        made = next(iter(given.made.values()))
        if (needed := memory_by_parts(made, given.blueprint, given.models, method)) is not None:
            held, memory = PARTS, min(memory, needed)
    if (method.unit == "model" or not streams) and isinstance(given.blueprint, str):
        return Way(name, "no", "", None, given.blueprint)
    needs = method.requires()
    if "base" in needs and not given.has_base:
        return Way(name, "with a base model", held, memory, NEEDS["base"])
    if data := [need for need in needs if need not in ("base", "blueprint")]:
        return Way(name, "with data", held, memory, NEEDS[data[0]] + (_BY_FILES if held == PARTS else ""))
    try:
        method.check([1 / given.models] * given.models, {})
    except InputError as error:
        return Way(name, "no", "", None, str(error))
    return Way(name, "yes", held, memory)


def match_ways(given: Given) -> list[Way]:
    """All presets of matching, as `match` and `fuse` take or refuse them."""
    return [_match_way(name, given) for name in presets()]


def _match_way(name: str, given: Given) -> Way:
    recipe = presets()[name]
    if not recipe.options.spaces:
        return Way(name, "yes", "", 0, meanings()[name])
    if isinstance(given.blueprint, str):
        return Way(name, "no", "", None, given.blueprint)
    try:
        spaces = recipe.options.select(given.blueprint.in_gauge(recipe.gauge))
    except InputError as error:
        return Way(name, "no", "", None, str(error))
    if not spaces:
        return Way(name, "no", "", None, "no space of these models is one that it matches")
    # Two models and their twins.
    held, memory, disk = WHOLE, 4 * max(given.sizes), 0
    if given.made is not None and given.matched_by_parts and looks_at_parts(recipe):
        try:
            (described, parts), coupled = parts_of(given.blueprint, recipe, given.made)
            counts = _counts(given.made)
            needed = coupled_memory(counts, described, parts) if coupled else parts_memory(counts, parts)
            held, memory = PARTS, min(memory, needed)
            if coupled and max(given.sizes) >= match_stream.IN_MEMORY and isinstance(recipe.options, MatchOptions):
                disk = coupled_bytes(counts, described, recipe.options)
        except NotByPartsError:
            pass
    kinds = ", ".join(dict.fromkeys(str(space.role) for space in spaces))
    words = f"{len(spaces)} spaces: {kinds}"
    if disk:
        words += f"; {size_words(disk)} of the disk meanwhile"
    return Way(name, "with data" if recipe.needs_inputs else "yes", held, memory, words, disk)


def _counts(made: Mapping[str, Weightless]) -> dict[str, int]:
    """The numbers of each parameter."""
    return {name: tensor.numel() for name, tensor in next(iter(made.values())).model.state_dict().items()}


def ways_table(title: str, ways: list[Way]) -> Table:
    """A row for each method or matching.

    Args:
        title: of the table.
        ways: in its order.
    """
    table = Table(title=title, title_justify="left")
    for heading in ("name", "possible", "in memory"):
        table.add_column(heading, no_wrap=True)
    table.add_column("about", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for way in ways:
        table.add_row(way.name, way.possible, way.held, size_words(way.memory) if way.memory else "", way.why)
    return table
