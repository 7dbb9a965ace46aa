"""The graph read with types in place of numbers: which hidden space every dimension runs through.

Four passes over one graph. *Structure* unifies the types of dimensions until nothing changes. *Scale* lets an unknown
power of a factor act along every stretch of every parameter and collects the linear equations under which the outputs
stay: sums want equal powers, products add them, contractions cancel them, all other functions want none. *Sign* is the
same modulo two and blind to norms, which rotations leave alone, and to odd functions, which signs pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Literal

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
    parity,
    plus,
    resolve,
    size_of,
    total,
)
from fusionlab.symmetry.infer.numbers import Numbers, free_dimensions
from fusionlab.symmetry.infer.trace import Traced
from fusionlab.symmetry.infer.unify import merged, plain, unify
from fusionlab.symmetry.infer.untangle import untangle
from fusionlab.symmetry.infer.values import RULES, Notes, Value, unknown, values_in

Pass = Literal["structure", "scale", "sign"]
# Structure is read again until it stays, at most so often.
ROUNDS = 5


def operation_of(node: fx.Node) -> str:
    """The name of a node's operation, such as ``addmm``."""
    name = getattr(node.target, "__name__", str(node.target))
    return name if name == "getitem" else str(node.target).removeprefix("aten.").split(".")[0]


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
        self._numbers = Numbers(traced)
        self._equations: set[frozenset[tuple[Stretch, int]]] = set()
        self._values: dict[fx.Node, Any] = {}

    def read(self) -> Reading:
        """Run all passes; returns itself."""
        start = {name: [fresh(n) for n in tensor.shape] for name, tensor in self.traced.state.items()}
        before = -1
        for _ in range(ROUNDS):
            self.notes.clashes.clear()
            self.notes.returned.clear()
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
        named = (notes.scores, notes.mixed, notes.streams, notes.padded, notes.rectified, notes.met)
        for spaces in (*named, *notes.returned.values()):
            found = {atom.variable for variable in spaces for atom in atoms((Atom(variable),))}
            spaces.clear()
            spaces.update(found)

    def _streams(self) -> set[Variable]:
        """The streams, each by the variable that stands for it now."""
        return {atom.variable for variable in self.notes.streams for atom in atoms((Atom(variable),))}

    def _fits(self, weight: str, bias: str) -> bool:
        """A vector has an entry for each that a linear map writes."""
        shape, count = self.traced.state[weight].shape, self.traced.state[bias].numel()
        written, read = (
            math.prod(shape[dim] for dim in {dim for name, dim, _ in stretches if name == weight})
            for stretches in (self.notes.writers, self.notes.readers)
        )
        # What is one number wide is no stretch: a linear map that writes only such is told by what it reads.
        return weight != bias and (written == count or count * read == shape.numel())

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
                if self.mode == "structure":
                    along = {atom.variable for dim in value.dims for atom in atoms(dim)}
                    self.notes.returned[name] = along & self._streams()
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
        return operation_of(self.node)

    def depends_on_parameters(self, node: object) -> bool:
        """Some parameter enters what a node computes."""
        return node in self._values

    def free(self, node: fx.Node) -> list[bool]:
        """True for each dimension along which what a node computes does not vary."""
        return self._numbers.free(node)

    def _lift(self, node: fx.Node) -> Any:
        """The argument that a node is: a value, or a constant, new at every use."""
        if node in self._values:
            return self._values[node]
        out = self._numbers[node]
        if not isinstance(out, Tensor):
            return out
        return Value([fresh(n, not free) for n, free in zip(out.shape, self.free(node), strict=True)], out)

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

    def rectify(self, value: Value, is_even: bool = False) -> None:
        """Note that a value's entries are treated by their signs.

        Args:
            is_even: whether the two signs are treated alike.
        """
        if self.mode == "scale":
            # Powers say along which spaces a factor arrives here.
            arriving = (atom for dim in value.dims for atom in atoms(dim))
            self.notes.rectified.update(atom.variable for atom in arriving)
        elif self.mode == "sign" and not is_even:
            for dim in value.dims:
                self.silence(dim)

    def opaque(self, arguments: Any, out: Any) -> Any:
        """The result of an operation without a rule; nothing may move along what goes into it."""
        for value in values_in(arguments):
            for dim in value.dims:
                self.silence(freeze(dim))
        return unknown(out)

    def constant(self, tensor: Tensor) -> Value:
        """Numbers that no parameter enters."""
        return Value(
            [fresh(n, not free) for n, free in zip(tensor.shape, free_dimensions(tensor), strict=True)], tensor
        )


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
