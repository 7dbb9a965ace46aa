"""Operations that move, cut and join dimensions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

from torch import Tensor

from fusionlab.symmetry.infer.dims import ClashError, Dim, Sum, Variable, atoms, chosen, freeze, fresh, size_of, total
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.numbers import is_zero
from fusionlab.symmetry.infer.unify import chop, cut
from fusionlab.symmetry.infer.values import Value, rule


@rule("view", "_unsafe_view", "reshape", "flatten", "unflatten", "_reshape_alias")
def _view(reading: Reading, x: Value, *shape: Any, out: Tensor) -> Value:
    # Stretch by stretch of equal length, so that a clash stays where it is.
    sizes, i, j, dims = x.tensor.shape, 0, 0, list[Dim]()
    while i < len(sizes) or j < out.ndim:
        a, b, m, n = i, j, 1, 1
        while (a == i and b == j) or m != n:
            if i < len(sizes) and (m <= n or j == out.ndim):
                m, i = m * sizes[i], i + 1
            else:
                n, j = n * out.shape[j], j + 1
        rest: Dim = tuple(chain.from_iterable(x.dims[a:i]))
        new: list[Dim] = []
        try:
            for length in reversed(out.shape[b:j]):
                rest, dim = chop(rest, length)
                new.insert(0, dim)
        except ClashError as clash:
            reading.give_up([rest, *new] if rest else new, str(clash))
            new = [fresh(length, is_fixed=True) for length in out.shape[b:j]]
        dims += new
    whole = x.parameter if x.tensor.squeeze().shape == out.squeeze().shape else None
    return replace(x, dims=dims, tensor=out, parameter=whole)


@rule("t", "transpose", "permute", "unsqueeze", "squeeze", "movedim", "swapaxes")
def _move(reading: Reading, x: Value, *args: Any, out: Tensor, **options: Any) -> Value:
    """Find where each dimension went by moving their numbers."""
    order: list[int | None] = list(range(x.tensor.ndim))
    match reading.operation.rstrip("_"), args:
        case "t", _:
            order.reverse()
        case (("transpose" | "swapaxes"), (a, b)):
            order[a], order[b] = order[b], order[a]
        case "permute", (dims,):
            order = [d % x.tensor.ndim for d in dims]
        case "unsqueeze", (dim,):
            order.insert(dim % (x.tensor.ndim + 1), None)
        case "squeeze", _:
            named = [args[0]] if args and isinstance(args[0], int) else (args[0] if args else range(x.tensor.ndim))
            gone = {d % x.tensor.ndim for d in named if x.tensor.shape[d] == 1}
            order = [d for d in order if d not in gone]
        case _:
            raise ClashError(f"{reading.operation} with arguments of another form")
    dims = [() if d is None else x.dims[d] for d in order]
    return replace(x, dims=dims, tensor=out, parameter=x.parameter if out.squeeze().ndim == 1 else None)


@rule("as_strided")
def _as_strided(reading: Reading, x: Value, *rest: Any, out: Tensor) -> Any:
    return replace(x, tensor=out) if x.tensor.shape == out.shape else reading.opaque([x], out)


@rule("expand", "expand_as", "broadcast_to")
def _expand(reading: Reading, x: Value, *rest: Any, out: Tensor, **options: Any) -> Value:
    new = out.ndim - x.tensor.ndim
    dims = [
        fresh(length) if position < new or length != x.tensor.shape[position - new] else x.dims[position - new]
        for position, length in enumerate(out.shape)
    ]
    return replace(x, dims=dims, tensor=out)


@rule("repeat", "tile")
def _repeat(reading: Reading, x: Value, times: Sequence[int], *, out: Tensor) -> Value:
    dims = [()] * (out.ndim - x.tensor.ndim) + list(x.dims)
    return Value([fresh(n) + dim for n, dim in zip(times, dims, strict=True)], out, origin=x.origin)


@rule("slice", "narrow")
def _slice(
    reading: Reading, x: Value, dim: int = 0, start: Any = 0, stop: Any = None, step: int = 1, *, out: Tensor
) -> Value:
    if reading.operation == "narrow":
        stop = start + stop
    return sliced(reading, x, dim, start, stop, step, out=out)


def sliced(reading: Reading, x: Value, dim: int, start: Any, stop: Any, step: int = 1, *, out: Tensor) -> Value:
    """A stretch of a dimension."""
    length = x.tensor.shape[dim]
    start, stop, _ = slice(start, stop).indices(length)
    dims = chosen(x.dims, dim, start, stop) if step == 1 and stop > start else list(x.dims)
    try:
        if step > 1:
            dims[dim], inner = chop(dims[dim], step)
            cut(inner, start, start + 1)
        elif size_of(dims[dim]) == length:
            dims[dim] = cut(dims[dim], start, stop) if stop > start else ()
    except ClashError as clash:
        reading.give_up([x.dims[dim]], str(clash))
        dims[dim] = fresh(out.shape[dim], is_fixed=True)
    if length == out.shape[dim]:
        return replace(x, dims=dims, tensor=out)
    is_of_rows = x.parameter is not None and dim % x.tensor.ndim == 0 and step == 1
    return replace(x, dims=dims, tensor=out, parameter=None, rows=(start, stop) if is_of_rows else None)


@rule("select")
def _select(reading: Reading, x: Value, dim: int, position: int, *, out: Tensor) -> Value:
    at = position % x.tensor.shape[dim]
    cut(x.dims[dim], at, at + 1)
    dims = chosen(x.dims, dim, at, at + 1)
    return replace(x, dims=[d for k, d in enumerate(dims) if k != dim % x.tensor.ndim], tensor=out, parameter=None)


@rule("unbind")
def _unbind(reading: Reading, x: Value, dim: int = 0, *, out: Sequence[Tensor]) -> tuple[Value, ...]:
    return tuple(_select(reading, x, dim, position, out=part) for position, part in enumerate(out))


@rule("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "tensor_split")
def _split(reading: Reading, x: Value, sizes: Any, dim: int = 0, *, out: Sequence[Tensor]) -> tuple[Value, ...]:
    ends = list(accumulate(part.shape[dim] for part in out))
    return tuple(
        sliced(reading, x, dim, end - part.shape[dim], end, out=part) for end, part in zip(ends, out, strict=True)
    )


@rule("cat", "concat")
def _cat(reading: Reading, parts: Sequence[Value], dim: int = 0, *, out: Tensor) -> Value:
    parts = [part for part in parts if part.tensor.numel()]
    dim %= out.ndim
    dims: list[Dim] = [
        _alike(reading, parts, i) if i != dim else (Sum(tuple(part.dims[i] for part in parts)),)
        for i in range(out.ndim)
    ]
    return Value(dims, out)


def _alike(reading: Reading, parts: Sequence[Value], dim: int) -> Dim:
    """A dimension that all parts have, of equal powers; those of zeros alone may be any."""
    zeros = [is_zero(part.tensor) for part in parts]
    if all(zeros):
        zeros = [False] * len(parts)
    return reading.join(
        [part.dims[dim] for part in parts],
        lambda es: reading.equal([e for e, zero in zip(es, zeros, strict=True) if not zero]),
    )


@rule("stack")
def _stack(reading: Reading, parts: Sequence[Value], dim: int = 0, *, out: Tensor) -> Value:
    at = dim % out.ndim
    raised = [Value([*p.dims[:at], (), *p.dims[at:]], p.tensor.unsqueeze(dim)) for p in parts]
    return _cat(reading, raised, dim, out=out)


@rule("slice_scatter")
def _slice_scatter(
    reading: Reading, x: Value, y: Value, dim: int = 0, start: Any = 0, stop: Any = None, step: int = 1, *, out: Tensor
) -> Value:
    if step != 1:
        raise ClashError("a step in what is written to")
    length = out.shape[dim]
    start, stop, _ = slice(start, stop).indices(length)
    parts = [y.dims[dim]]
    if start:
        parts.insert(0, cut(x.dims[dim], 0, start))
    if stop < length:
        parts.append(cut(x.dims[dim], stop, length))
    dims: list[Dim] = [
        (Sum(tuple(parts)),) if i == dim % out.ndim else reading.join([x.dims[i], y.dims[i]], total)
        for i in range(out.ndim)
    ]
    return Value(dims, out)


@rule("select_scatter")
def _select_scatter(reading: Reading, x: Value, y: Value, dim: int, position: int, *, out: Tensor) -> Value:
    dim %= out.ndim
    freeze(x.dims[dim])
    rest = iter(y.dims)
    dims = [d if i == dim else reading.join([d, next(rest)], total) for i, d in enumerate(x.dims)]
    return Value(dims, out)


@rule("constant_pad_nd")
def _pad(reading: Reading, x: Value, pad: Sequence[int], *rest: Any, out: Tensor) -> Value:
    dims = list(x.dims)
    for position, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if before < 0 or after < 0:
            raise ClashError("padding that cuts")
        if before or after:
            whole = [fresh(n) for n in (before,) if n] + [dims[-1 - position]] + [fresh(n) for n in (after,) if n]
            dims[-1 - position] = (Sum(tuple(whole)),)
    reading.notes.padded.update(_kept_atoms(x, pad))
    return Value(dims, out)


def _kept_atoms(x: Value, pad: Sequence[int]) -> set[Variable]:
    """The spaces on dimensions that this padding leaves alone; where it adds nothing, it may for other lengths."""
    beside = {len(x.dims) - 1 - k for k, ends in enumerate(zip(pad[::2], pad[1::2], strict=True)) if any(ends)}
    return {atom.variable for i, dim in enumerate(x.dims) if i not in beside for atom in atoms(dim)}


@rule("flip", "roll", "cumsum", "cumprod")
def _shuffled(reading: Reading, x: Value, *args: Any, out: Tensor, **options: Any) -> Value:
    last = args[-1]
    for dim in last if isinstance(last, list | tuple) else [last]:
        reading.silence(freeze(x.dims[dim]))
    return replace(x, dims=list(x.dims), tensor=out, parameter=None, origin=None)
