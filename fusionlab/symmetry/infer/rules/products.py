"""Products of matrices: what contracts two dimensions."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fusionlab.symmetry.infer.dims import Dim, atoms, freeze, mapped, plus, resolve, size_of, total
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.numbers import is_zero
from fusionlab.symmetry.infer.rules.pointwise import combined
from fusionlab.symmetry.infer.unify import chop
from fusionlab.symmetry.infer.values import Value, rule


def note_map(reading: Reading, weight: Value, contracted: Dim, *written: Dim) -> None:
    """Note which stretches of a linear map's weight read, and which write."""
    if reading.mode == "scale" and weight.origin:
        reading.notes.readers.update(key for atom in atoms(contracted) for key in atom.exponent)
        reading.notes.writers.update(key for dim in written for atom in atoms(dim) for key in atom.exponent)


def contracted(reading: Reading, x: Value, y: Value, left: int, right: int, free: Dim) -> str | None:
    """Contract two dimensions, note what this says about them, and return the weight: the second of two, if any.

    Of a table's rows and a map both are parameters, and linear layers are ``x @ weight.T``.
    """
    weights = [v for v in (x, y) if v.origin]
    for weight, dim in ((x, left), (y, right)):
        others = [d for position, d in enumerate(weight.dims) if position - len(weight.dims) != dim]
        note_map(reading, weight, weight.dims[dim], *others)
    meeting = [_of_rows(reading, x, left), _of_rows(reading, y, right)]
    if any(not v.origin and is_zero(v.tensor) for v in (x, y)):
        # A state before its first step: zero is what comes out, whatever factors do.
        reading.join(meeting, total)
        return weights[-1].origin if weights else None
    joined = reading.contract(*meeting)
    if not weights and reading.mode == "scale":
        reading.notes.scores.update(atom.variable for atom in atoms(joined))
        first = {key for atom in atoms(x.dims[left]) for key in atom.exponent}
        second = {key for atom in atoms(y.dims[right]) for key in atom.exponent}
        if reading.notes.queries.isdisjoint(second):
            reading.notes.queries.update(first)
        reading.notes.mixed.update(atom.variable for atom in atoms(free))
    return weights[-1].origin if weights else None


def _of_rows(reading: Reading, weight: Value, at: int) -> Dim:
    """A dimension that is contracted; where only some rows of a weight are, with an unknown of their own beside."""
    dim = resolve(weight.dims[at])
    if reading.mode != "scale" or not weight.origin:
        return dim
    stretches = [key for atom in atoms(dim) for key in atom.exponent if key[0] == weight.origin]
    if weight.rows is None:
        reading.notes.whole.update(stretches)
        return dim
    start, stop = weight.rows
    own = {(name, d, count): (f"{name}[{start}:{stop}]", d, count) for name, d, count in stretches}
    reading.notes.parts.update({part: (whole, weight.rows) for whole, part in own.items()})
    return mapped(dim, lambda exponent: plus(exponent, {own[key]: exponent[key] for key in exponent if key in own}))


@rule("mm", "bmm")
def _mm(reading: Reading, x: Value, y: Value, *, out: Tensor, **options: Any) -> Value:
    weight = contracted(reading, x, y, -1, -2, y.dims[-1])
    batch = [reading.join([a, b], total) for a, b in zip(x.dims[:-2], y.dims[:-2], strict=True)]
    return Value([*batch, x.dims[-2], y.dims[-1]], out, weight=weight)


@rule("linalg_solve_triangular")
def _solve_triangular(
    reading: Reading, a: Value, b: Value, *, upper: bool, left: bool = True, out: Tensor, **options: Any
) -> Value:
    """Linear in the right-hand side: the system's own rows and columns stay, the dimension beside them is as given."""
    for dim in a.dims:
        reading.silence(dim)
    solved = -2 if left else -1
    for dim in (a.dims[-1], a.dims[-2], b.dims[solved]):
        freeze(dim)
    batch = [reading.join([x, y], total) for x, y in zip(a.dims[:-2], b.dims[:-2], strict=True)]
    return Value([*batch, *b.dims[-2:]], out)


@rule("mv")
def _mv(reading: Reading, x: Value, y: Value, *, out: Tensor) -> Value:
    weight = contracted(reading, x, y, -1, -1, ())
    return Value([x.dims[0]], out, weight=weight)


@rule("addmv")
def _addmv(reading: Reading, bias: Value, x: Value, y: Value, *, out: Tensor, **options: Any) -> Value:
    return combined(reading, [bias, _mv(reading, x, y, out=out)], "add", out)


@rule("_trilinear")
def _trilinear(
    reading: Reading, x: Value, w: Value, y: Value, *expanded: Sequence[int], out: Tensor, **options: Any
) -> Value:
    """A sum over products of three, as in a bilinear layer: its weight reads two vectors."""
    *around, summed = expanded[:4]
    laid = [_unsqueezed(value, dims) for value, dims in zip((x, w, y), around, strict=True)]
    for d in summed:
        note_map(reading, w, laid[1].dims[d], *(other for i, other in enumerate(laid[1].dims) if i not in summed))
    dims = []
    for d in range(laid[0].tensor.ndim):
        met = [value.dims[d] for value in laid if value.dims[d]]
        joined = reading.join(met, total) if met else ()
        if d in summed:
            reading.silence(joined)
        else:
            dims.append(joined)
    return Value(dims, out, weight=w.origin)


def _unsqueezed(value: Value, dims: Sequence[int]) -> Value:
    left = iter(value.dims)
    count = value.tensor.ndim + len(dims)
    tensor = value.tensor
    for d in sorted(dims):
        tensor = tensor.unsqueeze(d)
    return Value([() if d in dims else next(left) for d in range(count)], tensor)


@rule("dot", "vdot")
def _dot(reading: Reading, x: Value, y: Value, *, out: Tensor) -> Value:
    contracted(reading, x, y, -1, -1, ())
    return Value([], out)


@rule("addmm", "baddbmm")
def _addmm(reading: Reading, bias: Value, x: Value, y: Value, *, out: Tensor, **options: Any) -> Value:
    product = _mm(reading, x, y, out=out)
    if product.weight and bias.origin:
        reading.notes.biases.setdefault(product.weight, bias.origin)
    return combined(reading, [bias, product], "add", out)


@rule(
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math", "scaled_dot_product_attention"
)
def _attention(reading: Reading, q: Value, k: Value, v: Value, *rest: Any, out: Any, **options: Any) -> Any:
    contracted(reading, q, k, -1, -1, ())
    if reading.mode == "scale":
        reading.notes.mixed.update(atom.variable for atom in atoms(v.dims[-1]))
    batch = [reading.silence(_shared(reading, a, b)) for a, b in zip(q.dims[:-2], k.dims[:-2], strict=True)]
    batch = [_shared(reading, a, b) for a, b in zip(batch, v.dims[:-2], strict=True)]
    first = out[0] if isinstance(out, tuple | list) else out
    value = Value([*batch, q.dims[-2], v.dims[-1]], first)
    return (value, *out[1:]) if isinstance(out, tuple | list) else value


def _shared(reading: Reading, queries: Dim, keys: Dim) -> Dim:
    """The heads of queries, of which each of keys or values may serve several neighbours."""
    each = size_of(queries) // size_of(keys)
    if each == 1:
        return reading.join([queries, keys], total)
    heads, inside = chop(queries, each)
    return (reading.join([heads, keys], total) if keys else ()) + inside
