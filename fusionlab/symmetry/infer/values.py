"""Tensors with types, and what is noted about parameters while a graph is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from torch import Tensor

from fusionlab.symmetry.infer.dims import Dim, Stretch, Variable, fresh

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


@dataclass
class Value:
    """A tensor with the types of its dimensions.

    Attributes:
        dims: one for each dimension.
        tensor: the numbers.
        parameter: the parameter whose entries these are, all of them in order; or None.
        origin: the parameter that these entries were taken from, in any order; or None.
        weight: the parameter of the linear map that made it, until a bias is added; or None.
        index: what its entries are positions in, if they are any.
        rows: of a parameter, the first and the end of the rows that these are, if they are not all; or None.
    """

    dims: list[Dim]
    tensor: Tensor
    parameter: str | None = None
    origin: str | None = None
    weight: str | None = None
    index: Dim | None = None
    rows: tuple[int, int] | None = None


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register what operations of aten do to types: a function ``(reading, *arguments, out=numbers)`` of values."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@dataclass
class Notes:
    """The facts that a reading finds about parameters, beside types.

    Attributes:
        gains: vectors that something is multiplied with element by element.
        offsets: numbers that are added to a parameter before it is used, ``1 + w``.
        readers: stretches that linear maps contract with what they read.
        writers: stretches along which linear maps write.
        parts: stretches that only some rows of a weight contract with what they read, under names of their own: the
            whole stretch, and those rows. A gain may go into them alone.
        whole: stretches that all rows of a weight contract with what they read.
        biases: by the weight of a linear map, the bias that is added to what it makes.
        scores: spaces contracted between two activations, as queries and keys are.
        queries: stretches that write the first of the two.
        mixed: spaces of what such a product makes, as values are.
        streams: spaces along which two activations are added.
        rectified: spaces that only positive factors commute with: along them a ReLU or a maximum is taken.
        padded: spaces beside which zeros are put.
        returned: by output, the streams along it, whose bases are therefore not free.
        met: spaces along which numbers are added that no parameter enters and that tell coordinates apart.
        unknown: operations without a rule.
        experts: spaces of entries that were seen to change places (`fusionlab.symmetry.infer.exchange`).
        clashes: where types did not fit.
        vocabularies: by input, how many rows the table has that it is looked up in.
    """

    gains: set[str] = field(default_factory=set)
    offsets: dict[str, float] = field(default_factory=dict)
    readers: set[Stretch] = field(default_factory=set)
    writers: set[Stretch] = field(default_factory=set)
    parts: dict[Stretch, tuple[Stretch, tuple[int, int]]] = field(default_factory=dict)
    whole: set[Stretch] = field(default_factory=set)
    biases: dict[str, str] = field(default_factory=dict)
    scores: set[Variable] = field(default_factory=set)
    queries: set[Stretch] = field(default_factory=set)
    mixed: set[Variable] = field(default_factory=set)
    streams: set[Variable] = field(default_factory=set)
    rectified: set[Variable] = field(default_factory=set)
    padded: set[Variable] = field(default_factory=set)
    returned: dict[str, set[Variable]] = field(default_factory=dict)
    met: set[Variable] = field(default_factory=set)
    unknown: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    experts: set[Variable] = field(default_factory=set)
    clashes: list[str] = field(default_factory=list)
    vocabularies: dict[str, int] = field(default_factory=dict)


def unknown(out: Any) -> Any:
    """Values of which nothing may move."""
    if isinstance(out, Tensor):
        return Value([fresh(n, is_fixed=True) for n in out.shape], out)
    return tuple(map(unknown, out)) if isinstance(out, tuple | list) else out


def values_in(arguments: Any) -> list[Value]:
    if isinstance(arguments, Value):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, tuple | list):
        return []
    return list(chain.from_iterable(map(values_in, arguments)))
