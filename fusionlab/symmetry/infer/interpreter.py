"""The graph read with types in place of numbers: which hidden space every dimension runs through.

Four passes over one graph. *Structure* unifies the types of dimensions until nothing changes. *Scale* lets an unknown
power of a factor act along every stretch of every parameter and collects the linear equations under which the outputs
stay: sums want equal powers, products add them, contractions cancel them, all other functions want none. *Sign* is the
same modulo two and blind to norms, which rotations leave alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Literal

import torch
from torch import Tensor, fx

from fusionlab.symmetry.infer.dims import (
    Atom,
    ClashError,
    Dim,
    Exponent,
    Factor,
    Stretch,
    Sum,
    Variable,
    atoms,
    freeze,
    fresh,
    mapped,
    merged,
    parity,
    plain,
    plus,
    resolve,
    size_of,
    total,
    unify,
)
from fusionlab.symmetry.infer.trace import Traced

Pass = Literal["structure", "scale", "sign"]
# Structure is read again until it stays, at most so often.
ROUNDS = 5


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
    """

    dims: list[Dim]
    tensor: Tensor
    parameter: str | None = None
    origin: str | None = None
    weight: str | None = None
    index: Dim | None = None


Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register what operations of aten do to types: a function ``(reading, *arguments, out=numbers)`` of values."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@dataclass
class Notes:
    """What a reading learns about parameters, beside types.

    Attributes:
        gains: vectors that something is multiplied with element by element.
        offsets: numbers that are added to a parameter before it is used, ``1 + w``.
        readers: stretches that linear maps contract with what they read.
        writers: stretches along which linear maps write.
        biases: by the weight of a linear map, the bias that is added to what it makes.
        scores: spaces contracted between two activations, as queries and keys are.
        queries: stretches that write the first of the two.
        mixed: spaces of what such a product makes, as values are.
        streams: spaces along which two activations are added.
        rectified: spaces that only positive factors commute with: along them a ReLU or a maximum is taken.
        padded: spaces beside which zeros are put.
        routed: spaces that are chosen from by the largest entries.
        unknown: operations without a rule.
        clashes: where types did not fit.
        vocabularies: by input, how many rows the table has that it is looked up in.
    """

    gains: set[str] = field(default_factory=set)
    offsets: dict[str, float] = field(default_factory=dict)
    readers: set[Stretch] = field(default_factory=set)
    writers: set[Stretch] = field(default_factory=set)
    biases: dict[str, str] = field(default_factory=dict)
    scores: set[Variable] = field(default_factory=set)
    queries: set[Stretch] = field(default_factory=set)
    mixed: set[Variable] = field(default_factory=set)
    streams: set[Variable] = field(default_factory=set)
    rectified: set[Variable] = field(default_factory=set)
    padded: set[Variable] = field(default_factory=set)
    routed: set[Variable] = field(default_factory=set)
    unknown: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    clashes: list[str] = field(default_factory=list)
    vocabularies: dict[str, int] = field(default_factory=dict)


class Reading:
    """A traced graph, read.

    Attributes:
        parameters: by name, the types of a parameter's dimensions; after `read`, with an unknown for each stretch.
        strict: equations of the scale pass.
        relaxed: equations of the sign pass.
        outputs: by name, the dimensions of what the model returns beside what it is for, with the powers of the scale
            pass and, under the names of `parity`, those of the sign pass.
        notes: what else was learned.
    """

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.notes = Notes()
        self.parameters: dict[str, list[Dim]] = {}
        self.strict: list[Exponent] = []
        self.relaxed: list[Exponent] = []
        self.outputs: dict[str, list[Dim]] = {}
        self.mode: Pass = "structure"
        self.node: fx.Node
        self._numbers = _Numbers(traced)
        self._equations: set[frozenset[tuple[Stretch, int]]] = set()
        self._values: dict[fx.Node, Any] = {}

    def read(self) -> Reading:
        """Run all passes; returns itself."""
        start = {name: [fresh(n) for n in tensor.shape] for name, tensor in self.traced.state.items()}
        before = -1
        for _ in range(ROUNDS):
            self.notes.clashes.clear()
            self._run("structure", start)
            found = sum(1 for dims in start.values() for dim in dims for _ in atoms(dim))
            untangled = untangle(start)
            if untangled is None and found == before:
                break
            start, before = untangled or start, found
        counts = {name: count() for name in start}
        typed = {
            name: [
                mapped(resolve(dim), lambda _, n=name, i=i: {(n, i, next(counts[n])): 1})  # type: ignore[misc]
                for i, dim in enumerate(dims)
            ]
            for name, dims in start.items()
        }
        self.parameters = typed
        signs = self._run("sign", typed)
        self.relaxed = [dict(equation) for equation in self._equations]
        powers = self._run("scale", typed)
        self.strict = [dict(equation) for equation in self._equations]
        self._settle()
        self.notes.biases = {w: b for w, b in self.notes.biases.items() if self._fits(w, b)}
        self.outputs = {
            name: [_with_parities(a, b) for a, b in zip(powers[name], signs[name], strict=True)] for name in powers
        }
        return self

    def _settle(self) -> None:
        """Name every space by the variable that stands for it in the end."""
        self.parameters = {name: [resolve(dim) for dim in dims] for name, dims in self.parameters.items()}
        notes = self.notes
        for spaces in (notes.scores, notes.mixed, notes.streams, notes.padded, notes.rectified):
            found = {atom.variable for variable in spaces for atom in atoms((Atom(variable),))}
            spaces.clear()
            spaces.update(found)

    def _fits(self, weight: str, bias: str) -> bool:
        """A vector has an entry for each that a linear map writes."""
        shape = self.traced.state[weight].shape
        written = {dim for name, dim, _ in self.notes.writers if name == weight}
        return math.prod(shape[dim] for dim in written) == self.traced.state[bias].numel() and weight != bias

    def _run(self, mode: Pass, parameters: dict[str, list[Dim]]) -> dict[str, list[Dim]]:
        """One pass; returns the dimensions of the outputs that may change."""
        self.mode, self._values, self._equations = mode, {}, set()
        names = iter((*self.traced.state, *self.traced.inputs))
        for node in self.traced.graph.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                name = next(names)
                if name in parameters:
                    tensor = self._numbers[node]
                    self._values[node] = Value(list(parameters[name]), tensor, parameter=name, origin=name)
            elif node.op == "output":
                outputs = self._finish(node)
            elif node.op == "call_function" and any(n in self._values for n in node.all_input_nodes):
                self._values[node] = self._apply(node)
        return outputs

    def _finish(self, node: fx.Node) -> dict[str, list[Dim]]:
        found = {}
        for position, (name, out) in enumerate(zip(self.traced.outputs, node.args[0], strict=True)):  # type: ignore[arg-type]
            value = self._values.get(out)
            if not isinstance(value, Value):
                continue
            if position < self.traced.kept:
                for dim in value.dims:
                    self.silence(freeze(dim))
            else:
                found[name] = [plain(dim) for dim in value.dims]
        return found

    def _apply(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg(node.args, self._lift), fx.node.map_arg(node.kwargs, self._lift)
        out = self._numbers[node]
        name = self.operation
        found = RULES.get(name) or RULES.get(name.rstrip("_"))
        if found is None:
            self.notes.unknown[name] += 1
            return self.opaque((args, kwargs), out)
        try:
            return found(self, *args, out=out, **kwargs)
        except ClashError as clash:
            self.notes.clashes.append(f"{node}: {clash}")
            return self.opaque((args, kwargs), out)

    @property
    def operation(self) -> str:
        """The name of the present node's operation, such as ``addmm``."""
        target = self.node.target
        name = getattr(target, "__name__", str(target))
        return name if name == "getitem" else str(target).removeprefix("aten.").split(".")[0]

    def depends_on_parameters(self, node: object) -> bool:
        """Some parameter enters what a node computes."""
        return node in self._values

    def _lift(self, node: fx.Node) -> Any:
        """The argument that a node is: a value, or a constant, new at every use."""
        if node in self._values:
            return self._values[node]
        out = self._numbers[node]
        if not isinstance(out, Tensor):
            return out
        return Value([fresh(n, not free) for n, free in zip(out.shape, self._numbers.free(node), strict=True)], out)

    # --- equations ---------------------------------------------------------------------------------------------------

    def zero(self, exponent: Exponent) -> Exponent:
        """Demand that a power vanishes."""
        if self.mode == "sign":
            exponent = {key: 1 for key, value in exponent.items() if value % 2}
        if exponent:
            self._equations.add(frozenset(exponent.items()))
        return {}

    def silence(self, dim: Dim) -> Dim:
        """A dimension along which no factor may act."""
        return mapped(resolve(dim), self.zero)

    def equal(self, exponents: list[Exponent]) -> Exponent:
        """Demand that powers are the same."""
        for other in exponents[1:]:
            self.zero(plus(exponents[0], other, -1))
        return exponents[0]

    def none(self, exponents: list[Exponent]) -> Exponent:
        """Demand that every power vanishes."""
        for exponent in exponents:
            self.zero(exponent)
        return {}

    def join(self, dims: list[Dim], function: Callable[[list[Exponent]], Exponent]) -> Dim:
        """Dimensions that meet element by element as one, with the powers that `function` makes of theirs."""
        try:
            for other in dims[1:]:
                unify(dims[0], other)
            return merged(dims, function)
        except ClashError as clash:
            return self.give_up(dims, str(clash))

    def give_up(self, dims: Sequence[Dim], why: str) -> Dim:
        """A dimension of which nothing is known, after what met in it is frozen."""
        self.notes.clashes.append(f"{self.node}: {why}")
        for dim in dims:
            self.silence(freeze(dim))
        return fresh(size_of(dims[0]), is_fixed=True)

    def contract(self, x: Dim, y: Dim) -> Dim:
        """A sum over the product of two dimensions; returns the joined type."""
        return self.join([x, y], lambda exponents: self.zero(total(exponents)))

    def rectify(self, value: Value) -> None:
        """Note that a value's entries are treated by their signs."""
        if self.mode == "scale":
            # Powers say along which spaces a factor arrives here.
            arriving = (atom for dim in value.dims for atom in atoms(dim))
            self.notes.rectified.update(atom.variable for atom in arriving)

    def opaque(self, arguments: Any, out: Any) -> Any:
        """What an operation without a rule returns: nothing may move along what goes in."""
        for value in _values_in(arguments):
            for dim in value.dims:
                self.silence(freeze(dim))
        return unknown(out)

    def constant(self, tensor: Tensor) -> Value:
        """Numbers that no parameter enters."""
        return Value([fresh(n, not free) for n, free in zip(tensor.shape, _free(tensor), strict=True)], tensor)


def _with_parities(powers: Dim, signs: Dim) -> Dim:
    """An output's dimension with the powers of one pass and the parities of another; constants differ between them."""
    if len(powers) != len(signs):
        return powers
    out: list[Factor] = []
    for f, g in zip(powers, signs, strict=True):
        if isinstance(f, Atom) and isinstance(g, Atom) and f.variable is g.variable:
            odd = {parity(key): value for key, value in g.exponent.items() if value % 2}
            out.append(Atom(f.variable, {**f.exponent, **odd}))
        elif isinstance(f, Sum) and isinstance(g, Sum) and len(f.parts) == len(g.parts):
            out.append(Sum(tuple(map(_with_parities, f.parts, g.parts)), f.tag))
        else:
            out.append(f)
    return tuple(out)


def unknown(out: Any) -> Any:
    """Values of which nothing may move."""
    if isinstance(out, Tensor):
        return Value([fresh(n, is_fixed=True) for n in out.shape], out)
    return tuple(map(unknown, out)) if isinstance(out, tuple | list) else out


def _values_in(arguments: Any) -> list[Value]:
    if isinstance(arguments, Value):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, tuple | list):
        return []
    return list(chain.from_iterable(map(_values_in, arguments)))


def untangle(parameters: dict[str, list[Dim]]) -> dict[str, list[Dim]] | None:
    """Parameters laid out as (3, heads, inner) or (groups, queries + 2, inner) as segments of their own.

    What lies inside of one segment need not be the space that lies inside of another.

    Returns:
        Types to start from anew, or None where there are no such parameters.
    """
    found = []

    def rewritten(dim: Dim) -> Dim:
        for position, factor in enumerate(dim[:-1]):
            if isinstance(factor, Sum):
                found.append(dim)
                length = size_of(dim[position + 1 :])
                parts = tuple(fresh(size_of(part) * length) for part in factor.parts)
                return (*fresh(size_of(dim[:position])), Sum(parts))
        only = dim[0] if len(dim) == 1 else None
        if isinstance(only, Sum):
            return (Sum(tuple(rewritten(resolve(part)) for part in only.parts)),)
        return fresh(size_of(dim))

    start = {name: [rewritten(resolve(dim)) for dim in dims] for name, dims in parameters.items()}
    return start if found else None


def _free(tensor: Tensor) -> list[bool]:
    """By dimension, whether nothing varies along it."""
    if tensor.numel() == 0:
        return [True] * tensor.ndim
    return [bool((tensor == tensor.narrow(dim, 0, 1)).all()) for dim in range(tensor.ndim)]


class _Numbers:
    """What every node of a graph computes, once."""

    def __init__(self, traced: Traced) -> None:
        self._found: dict[fx.Node, Any] = {}
        self._varying: dict[fx.Node, list[bool]] = {}
        _Keeping(traced.graph, self._found).run(*traced.state.values(), *traced.inputs.values())

    def __getitem__(self, node: fx.Node) -> Any:
        return self._found[node]

    def free(self, node: fx.Node) -> list[bool]:
        """By dimension, whether nothing varies along a constant."""
        if node not in self._varying:
            out = self._found[node].detach()
            # What is in memory that nobody wrote to is no information.
            self._varying[node] = [True] * out.ndim if "empty" in str(node.target) else _free(out)
        return self._varying[node]


class _Keeping(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule, kept: dict[fx.Node, Any]) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self._kept = kept

    @torch.no_grad()
    def run_node(self, n: fx.Node) -> Any:
        self._kept[n] = super().run_node(n)
        return self._kept[n]
