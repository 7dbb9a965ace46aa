"""Groups of neighbouring layers, by the names of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fusionlab.errors import InputError

_LAYER = re.compile(r"(?:(.*?)\.)??(\d+)\.")


@dataclass(frozen=True)
class Band:
    """Neighbouring layers, or all that is in no layer.

    Attributes:
        name: for the reader.
        patterns: of its parameters' names; the first band of a list whose pattern matches a name has it.
    """

    name: str
    patterns: tuple[str, ...]


def bands(names: Iterable[str], count: int) -> list[Band]:
    """The layers of a model in groups of neighbours, as even as can be, and all else.

    Layers are the outermost numbers in names of parameters (``encoder.layer.3.output.weight``); of a model with several
    stacks each is cut by itself, and parts of equal depth go together.

    Args:
        names: of parameters.
        count: groups of layers, from 2 up.

    Returns:
        The groups from the first layers to the last, then that of all else.

    Raises:
        InputError: fewer layers than groups.
    """
    stacks: dict[str, set[int]] = {}
    for name in names:
        if found := _LAYER.match(name):
            stacks.setdefault(f"{found[1]}." if found[1] else "", set()).add(int(found[2]))
    stacks = {path: numbers for path, numbers in stacks.items() if len(numbers) >= count}
    if not stacks:
        raise InputError(f"search layers is {count}, and the models have no stack of so many; expected fewer")
    parts: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    for path, numbers in stacks.items():
        for place, number in enumerate(sorted(numbers)):
            parts[place * count // len(numbers)].append((path, number))
    found_bands = [
        Band(_named([number for _, number in part]), tuple(f"{path}{number}.*" for path, number in part))
        for part in parts
    ]
    return [*found_bands, Band("the rest", ("*",))]


def _named(numbers: list[int]) -> str:
    first, last = min(numbers), max(numbers)
    return f"layer {first}" if first == last else f"layers {first} to {last}"
