"""Look-ups: entries taken from, or written to, places that another tensor says."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx

from fusionlab.symmetry.infer.dims import ClashError, Dim, freeze, fresh, size_of, total
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.numbers import is_zero
from fusionlab.symmetry.infer.rules.pointwise import combined
from fusionlab.symmetry.infer.rules.shapes import sliced
from fusionlab.symmetry.infer.values import Value, rule, unknown

# The mode of bags of embeddings that takes the largest.
LARGEST_OF_A_BAG = 2


def _looked_up(reading: Reading, dim: Dim, where: Value) -> None:
    """A dimension is read at the places that `where` says."""
    reading.silence(dim)
    if where.index is not None and size_of(where.index) == size_of(dim):
        reading.join([dim, where.index], reading.equal)
    else:
        freeze(dim)


@rule("embedding")
def _embedding(reading: Reading, table: Value, ids: Value, *rest: Any, out: Tensor, **options: Any) -> Value:
    _looked_up(reading, table.dims[0], ids)
    _note_vocabulary(reading, table)
    return Value([*ids.dims, *table.dims[1:]], out, origin=table.origin)


@rule("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    reading: Reading, table: Value, ids: Value, offsets: Value, *rest: Any, out: Sequence[Tensor], **options: Any
) -> Any:
    """Sums, means or maxima of the rows in each bag."""
    _looked_up(reading, table.dims[0], ids)
    _note_vocabulary(reading, table)
    if len(rest) > 1 and rest[1] == LARGEST_OF_A_BAG:
        reading.rectify(table)
    bags = Value([fresh(len(out[0]), is_fixed=True), *table.dims[1:]], out[0])
    return (bags, *map(unknown, out[1:]))


def _note_vocabulary(reading: Reading, table: Value) -> None:
    """Note how many rows the table has that an input is looked up in."""
    source = _source(reading.node.args[1])
    if source is not None and table.parameter:
        names = dict(
            zip(_placeholders(reading.node.graph), (*reading.traced.state, *reading.traced.inputs), strict=True)
        )
        if names[source] in reading.traced.inputs:
            reading.notes.vocabularies[names[source]] = table.tensor.shape[0]


def _source(node: Any) -> fx.Node | None:
    """The argument of the graph that a node's values are, moved about at most."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        if len(node.all_input_nodes) != 1 or "empty" in str(node.target):
            return None
        node = node.all_input_nodes[0]
    return node if isinstance(node, fx.Node) and node.op == "placeholder" else None


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


@rule("index", "index_select")
def _index(reading: Reading, x: Value, where: Any, *rest: Any, out: Tensor) -> Value:
    if isinstance(where, int):
        where = [None] * (where % x.tensor.ndim) + [rest[0]]
    stretch = _stretch(reading, x, where)
    if stretch is not None:
        return sliced(reading, x, *stretch, out=out)
    # A mask stands for as many dimensions as it has.
    places = list(chain.from_iterable(_places(reading, w) for w in where))
    used = [i for i, w in enumerate(places) if w is not None]
    for i in used:
        _looked_up(reading, x.dims[i], places[i])
    shape = torch.broadcast_tensors(*(places[i].tensor for i in used))[0]
    found = combined(reading, [places[i] for i in used], "other", shape)
    at = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
    kept = [d for i, d in enumerate(x.dims) if i not in used]
    return Value([*kept[:at], *found.dims, *kept[at:]], out, origin=x.origin)


def _stretch(reading: Reading, x: Value, where: Sequence[Any]) -> tuple[int, int, int] | None:
    """The dimension, start and stop of a look-up of neighbours at places that no parameter decides."""
    used = [i for i, w in enumerate(where) if w is not None]
    nodes = reading.node.args[1]
    if len(used) != 1 or not isinstance(nodes, list | tuple) or reading.depends_on_parameters(nodes[used[0]]):
        return None
    at = where[used[0]].tensor
    if at.ndim != 1 or at.dtype == torch.bool or at.numel() == 0:
        return None
    start = int(at[0]) % x.tensor.shape[used[0]]
    follows = bool((at % x.tensor.shape[used[0]] == torch.arange(start, start + len(at))).all())
    return (used[0], start, start + len(at)) if follows else None


def _places(reading: Reading, where: Any) -> list[Any]:
    if isinstance(where, Value) and where.tensor.dtype == torch.bool:
        return [reading.constant(i) for i in where.tensor.nonzero(as_tuple=True)]
    return [where]


@rule("nonzero", "nonzero_numpy", "argwhere")
def _nonzero(reading: Reading, x: Value, *, out: Any, **options: Any) -> Any:
    """Places, which tell apart what they are places in."""
    return reading.opaque([x], out)


@rule("gather")
def _gather(reading: Reading, x: Value, dim: int, where: Value, *rest: Any, out: Tensor, **options: Any) -> Value:
    _looked_up(reading, x.dims[dim], where)
    others = [
        w if i == dim % out.ndim or out.shape[i] != x.tensor.shape[i] else reading.join([d, w], total)
        for i, (d, w) in enumerate(zip(x.dims, where.dims, strict=True))
    ]
    return Value(others, out)


def _written(reading: Reading, x: Value, dims: Sequence[Dim]) -> Dim:
    """A dimension along which something is put, or added, into a tensor; the first of `dims` is the tensor's."""
    return reading.join(list(dims), total if is_zero(x.tensor) else reading.equal)


@rule("scatter", "scatter_add", "scatter_reduce")
def _scatter(
    reading: Reading, x: Value, dim: int, where: Value, value: Any, *rest: Any, out: Tensor, **options: Any
) -> Value:
    _looked_up(reading, x.dims[dim], where)
    if reading.operation == "scatter_reduce" and rest[0] in ("amax", "amin"):
        reading.rectify(value)
    elif reading.operation == "scatter_reduce" and rest[0] not in ("sum", "mean"):
        value = combined(reading, [value], "other", value.tensor)
    is_whole = isinstance(value, Value) and value.tensor.ndim == out.ndim
    dims = [d if i == dim % out.ndim else reading.join([d, where.dims[i]], total) for i, d in enumerate(x.dims)]
    for i, d in enumerate(dims):
        if i != dim % out.ndim and is_whole and value.tensor.shape[i] == out.shape[i]:
            dims[i] = _written(reading, x, [d, value.dims[i]])
    return Value(dims, out)


@rule("index_put", "index_copy")
def _index_put(reading: Reading, x: Value, where: Sequence[Any], value: Value, *rest: Any, out: Tensor) -> Value:
    used = [i for i, w in enumerate(where) if w is not None]
    for i in used:
        _looked_up(reading, x.dims[i], where[i])
    dims = list(x.dims)
    for i, d in enumerate(reversed(value.dims)):
        if i < x.tensor.ndim and x.tensor.ndim - 1 - i not in used and value.tensor.shape[-1 - i] > 1:
            dims[-1 - i] = _written(reading, x, [dims[-1 - i], d])
    return Value(dims, out)


@rule("masked_scatter")
def _masked_scatter(reading: Reading, x: Value, mask: Value, source: Value, *, out: Tensor) -> Value:
    """Rows put in the place of whole rows, as images' features among those of words."""
    rows = mask.tensor.expand_as(out)
    if not bool((rows == rows[..., :1]).all()) or source.tensor.shape[-1] != out.shape[-1]:
        raise ClashError("a mask that tells features apart")
    last = reading.join([x.dims[-1], source.dims[-1]], reading.equal)
    for dim in (*x.dims[:-1], *source.dims[:-1]):
        reading.silence(freeze(dim))
    return Value([*x.dims[:-1], last], out)


@rule("index_add")
def _index_add(reading: Reading, x: Value, dim: int, where: Value, value: Value, *, out: Tensor, **o: Any) -> Value:
    _looked_up(reading, x.dims[dim], where)
    dims = [
        d if i == dim % out.ndim else _written(reading, x, [d, v])
        for i, (d, v) in enumerate(zip(x.dims, value.dims, strict=True))
    ]
    return Value(dims, out)


@rule("new_empty", "empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "fill")
def _filled(reading: Reading, *args: Any, out: Tensor, **options: Any) -> Value:
    return Value([fresh(n) for n in out.shape], out)


@rule("getitem")
def _getitem(reading: Reading, values: Any, position: int, *, out: Any) -> Any:
    return values[position]
