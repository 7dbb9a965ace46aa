"""Operations element by element, with broadcasting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, fx

from fusionlab.symmetry.infer.dims import Dim, Exponent, atoms, freeze, fresh, mapped, resolve, total
from fusionlab.symmetry.infer.interpreter import Reading, operation_of
from fusionlab.symmetry.infer.numbers import is_zero
from fusionlab.symmetry.infer.rules.shapes import sliced
from fusionlab.symmetry.infer.values import Value, rule

Kind = Literal["add", "mul", "div", "other"]
FUNCTIONS = (
    *("gelu", "silu", "sigmoid", "exp", "expm1", "exp2", "log", "log1p", "log2", "log_sigmoid", "softplus"),
    *("log_sigmoid_forward", "erfc", "sqrt", "rsqrt", "reciprocal", "hardsigmoid"),
    *("hardswish", "mish", "elu", "selu", "celu", "floor", "ceil"),
    *("bitwise_not", "logical_not", "isnan", "isinf", "isfinite", "softmax", "_softmax", "_safe_softmax"),
    *("_log_softmax", "nan_to_num", "threshold"),
)
# f(-x) = -f(x), and f(-x) = f(x).
ODD = (
    *("tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "sign", "round", "trunc"),
    *("softshrink", "hardshrink"),
)
EVEN = ("cos", "cosh")
# Between two bounds.
CLAMPED = ("clamp", "clamp_min", "clamp_max", "hardtanh")
# Tensors whose polynomial a sum may be.
_MOST_SOURCES = 8
_ELEMENTWISE = {
    *FUNCTIONS,
    *ODD,
    *EVEN,
    *CLAMPED,
    *("add", "sub", "rsub", "mul", "div", "pow", "neg", "square", "relu", "abs", "_to_copy"),
}
COMPARISONS = (
    *("ge", "gt", "le", "lt", "eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"),
    *("logical_xor", "floor_divide", "remainder", "fmod", "atan2"),
)


def combined(reading: Reading, values: Sequence[Any], kind: Kind, out: Tensor) -> Value:
    """Values combined element by element.

    Args:
        values: values or numbers.
        kind: ``add`` wants equal powers and ``mul`` adds them; ``other`` wants none.
    """
    lifted = [v if isinstance(v, Value) else Value([], torch.as_tensor(v)) for v in values]
    return Value([_met(reading, lifted, dim, kind) for dim in range(-out.ndim, 0)], out)


def _met(reading: Reading, values: Sequence[Value], dim: int, kind: Kind) -> Dim:
    here = [v.dims[dim] if len(v.dims) >= -dim and v.tensor.shape[dim] > 1 else None for v in values]
    some = [d for d in here if d is not None]
    if not some:
        return ()
    if kind == "add":
        return _added(reading, values, here)
    if kind == "div":
        signs = [-1 if position else 1 for position, d in enumerate(here) if d is not None]
        return reading.join(
            some, lambda exponents: total([_times(e, s) for e, s in zip(exponents, signs, strict=True)])
        )
    return reading.join(some, total if kind == "mul" else reading.none)


def _times(exponent: Exponent, times: int) -> Exponent:
    return {key: times * value for key, value in exponent.items()}


def _added(reading: Reading, values: Sequence[Value], here: Sequence[Dim | None]) -> Dim:
    some = [d for d in here if d is not None]
    beside = [v for v, d in zip(values, here, strict=True) if d is None and not is_zero(v.tensor)]
    zeros = [is_zero(v.tensor) for v, d in zip(values, here, strict=True) if d is not None]
    if any(zeros) and not all(zeros):
        return reading.join(some, lambda es: reading.equal([e for e, z in zip(es, zeros, strict=True) if not z]))
    joined = reading.join(some, reading.equal)
    if not beside or (reading.mode == "sign" and _is_mean(values)):
        return joined
    return reading.silence(joined)


def _is_mean(values: Sequence[Value]) -> bool:
    """A number for each vector may be what is subtracted from its entries; rotations that keep the ones allow that."""
    return all(v.tensor.ndim > 0 for v in values)


@rule("clone", "alias", "detach", "_to_copy", "contiguous", "lift_fresh_copy", "lift_fresh", "neg", "dropout", "to")
def _same(reading: Reading, x: Value, *rest: Any, out: Tensor, **options: Any) -> Value:
    return replace(x, dims=list(x.dims), tensor=out)


@rule("copy")
def _copy(reading: Reading, x: Any, source: Any, *rest: Any, out: Tensor) -> Value:
    return combined(reading, [source], "mul", out)


@rule("relu", "leaky_relu", "rrelu")
def _homogeneous(reading: Reading, x: Value, *rest: Any, out: Tensor, **options: Any) -> Value:
    reading.rectify(x)
    return Value(list(x.dims), out, index=x.index)


@rule("abs")
def _absolute(reading: Reading, x: Value, *, out: Tensor) -> Value:
    reading.rectify(x, is_even=True)
    dims = _indifferent(x).dims if reading.mode == "sign" else x.dims
    return Value(list(dims), out, index=x.index)


@rule(*EVEN)
def _even(reading: Reading, x: Value, *, out: Tensor) -> Value:
    if reading.mode == "sign":
        return _indifferent(Value(x.dims, out))
    return combined(reading, [x], "other", out)


@rule(*ODD)
def _odd(reading: Reading, x: Value, *rest: Any, out: Tensor, **options: Any) -> Value:
    kind: Kind = "mul" if reading.mode == "sign" else "other"
    return replace(combined(reading, [x], kind, out), index=x.index)


@rule(*CLAMPED)
def _clamped(reading: Reading, x: Value, *bounds: Any, out: Tensor, **options: Any) -> Value:
    told = [bound for bound in (*bounds, *options.values()) if bound is not None] or [-1, 1]  # hardtanh's own
    if all(isinstance(bound, Value) for bound in told):
        reading.rectify(value := combined(reading, [x, *told], "add", out))
        return value
    if all(isinstance(bound, int | float) for bound in told):
        if not any(told):
            return _homogeneous(reading, x, out=out)
        if len(told) == 2 and sum(told) == 0:
            return _odd(reading, x, out=out)
    return _function(reading, x, out=out)


@rule(*FUNCTIONS)
def _function(reading: Reading, x: Value, *rest: Any, out: Any, **options: Any) -> Any:
    if isinstance(out, tuple | list):
        return tuple(replace(combined(reading, [x], "other", first), index=x.index) for first in out)
    return replace(combined(reading, [x], "other", out), index=x.index)


@rule("prelu", "_prelu_kernel")
def _prelu(reading: Reading, x: Value, slope: Value, *, out: Tensor) -> Value:
    # A slope for each channel moves with its channel, and any positive factor passes.
    reading.rectify(x)
    slopes = Value([mapped(resolve(d), reading.zero) for d in slope.dims], slope.tensor)
    if slopes.tensor.ndim == 1 and out.ndim > 1:
        shape = [1, -1, *[1] * (out.ndim - 2)]
        slopes = Value([(), slopes.dims[0], *[()] * (out.ndim - 2)], slope.tensor.reshape(shape))
    return combined(reading, [x, slopes], "mul", out)


@rule("add", "sub", "rsub", "maximum", "minimum")
def _add(reading: Reading, x: Any, y: Any, *rest: Any, out: Tensor, **options: Any) -> Value:
    for a, b in ((x, y), (y, x)):
        if isinstance(a, Value) and not isinstance(b, Value) and float(b) == 0 and not options:
            # Python's ``sum`` begins with zero.
            return replace(a, dims=list(a.dims), tensor=out)
        if isinstance(a, Value) and a.parameter and not isinstance(b, Value):
            # 1 + w: a gain that is stored with an offset.
            reading.notes.offsets[a.parameter] = float(b)
            return replace(a, tensor=out)
        if isinstance(a, Value) and isinstance(b, Value) and a.weight and b.origin:
            reading.notes.biases.setdefault(a.weight, b.origin)
    value = combined(reading, [x, y], "add", out)
    if reading.operation in ("maximum", "minimum"):
        reading.rectify(value)
    _note_stream(reading, x, y, value)
    _note_met(reading, value)
    return value


def _note_stream(reading: Reading, x: Any, y: Any, value: Value) -> None:
    """Note the spaces along which two activations are added."""
    are_activations = all(
        isinstance(v, Value) and not v.parameter and v.tensor.ndim > 1 and v.tensor.numel() > 1 for v in (x, y)
    )
    if are_activations and not _is_function_of_one(reading.node):
        for dim, a, b in zip(reversed(value.dims), reversed(x.dims), reversed(y.dims), strict=False):
            if a and b:
                reading.notes.streams.update(atom.variable for atom in atoms(dim))


def _note_met(reading: Reading, value: Value) -> None:
    """Note the spaces along which the present node adds numbers that no parameter enters, if they vary there."""
    for node in reading.node.all_input_nodes:
        if not reading.depends_on_parameters(node):
            for dim, is_free in zip(reversed(value.dims), reversed(reading.free(node)), strict=False):
                if not is_free:
                    reading.notes.met.update(atom.variable for atom in atoms(dim))


@rule("lerp")
def _lerp(reading: Reading, x: Value, y: Value, weight: Any, *, out: Tensor) -> Value:
    """A sum of two by shares, which no factor changes."""
    value = combined(reading, [x, y], "add", out)
    _note_stream(reading, x, y, value)
    if not isinstance(weight, Value):
        return value
    return combined(reading, [value, combined(reading, [weight], "other", weight.tensor)], "mul", out)


def _is_function_of_one(node: fx.Node) -> bool:
    """Both summands follow from one tensor element by element, as the terms of a polynomial do."""
    first, second = map(_sources, node.all_input_nodes) if len(node.all_input_nodes) == 2 else ({1}, {2})
    return bool(first) and first == second


def _sources(node: fx.Node) -> set[fx.Node]:
    """The nodes that a tensor is computed of element by element, apart from scalars and the graph's inputs, if few."""
    sources: set[fx.Node] = set()
    seen, waiting = {node}, [node]
    while waiting and len(sources) <= _MOST_SOURCES:
        one = waiting.pop()
        if one.op == "call_function" and operation_of(one) in _ELEMENTWISE:
            waiting += [argument for argument in one.all_input_nodes if argument not in seen]
            seen.update(one.all_input_nodes)
        elif one.op == "call_function":
            sources.add(one)
    # A stream has those of every layer before.
    return set() if len(sources) > _MOST_SOURCES else sources


@rule("mul", "div")
def _mul(reading: Reading, x: Any, y: Any, *rest: Any, out: Tensor, **options: Any) -> Value:
    for a, b in ((x, y), (y, x)):
        if isinstance(a, Value) and a.parameter and a.tensor.squeeze().ndim == 1 and isinstance(b, Value) and b.dims:
            reading.notes.gains.add(a.parameter)
    return combined(reading, [x, y], "div" if reading.operation.startswith("div") else "mul", out)


@rule("addcmul")
def _addcmul(reading: Reading, x: Value, y: Value, z: Value, *, out: Tensor, **options: Any) -> Value:
    return combined(reading, [x, combined(reading, [y, z], "mul", out)], "add", out)


@rule("glu")
def _glu(reading: Reading, x: Value, dim: int = -1, *, out: Tensor) -> Value:
    length = out.shape[dim]
    first, second = (sliced(reading, x, dim, start, start + length, out=out) for start in (0, length))
    return combined(reading, [first, combined(reading, [second], "other", out)], "mul", out)


@rule(*COMPARISONS)
def _compare(reading: Reading, x: Any, y: Any, *rest: Any, out: Tensor, **options: Any) -> Value:
    return combined(reading, [x, y], "other", out)


@rule("pow")
def _pow(reading: Reading, x: Any, power: Any, *, out: Tensor) -> Value:
    if isinstance(power, Value) or not isinstance(x, Value) or not float(power).is_integer():
        return combined(reading, [x, power], "other", out)
    return Value([mapped(resolve(dim), lambda e: _times(e, int(power))) for dim in x.dims], out)


@rule("where")
def _where(reading: Reading, condition: Value, x: Any, y: Any, *, out: Tensor) -> Value:
    combined(reading, [condition], "other", condition.tensor)
    both = all(isinstance(v, Value) and v.tensor.ndim for v in (x, y))
    masked = combined(reading, [x, y], "add" if both else "mul", out)
    return combined(reading, [masked, _indifferent(condition)], "mul", out)


@rule("masked_fill")
def _masked_fill(reading: Reading, x: Value, mask: Value, value: Any, *, out: Tensor) -> Value:
    return combined(reading, [x, _indifferent(mask)], "mul", out)


def _indifferent(mask: Value) -> Value:
    return Value([mapped(dim, lambda _: {}) for dim in mask.dims], mask.tensor)


@rule("tril", "triu")
def _triangle(reading: Reading, x: Value, *rest: Any, out: Tensor) -> Value:
    for dim in x.dims[-2:]:
        reading.silence(dim)
        for atom in atoms(dim):
            atom.variable.is_fixed = True
    return Value(list(x.dims), out)


@rule("view_as_complex")
def _view_as_complex(reading: Reading, x: Value, *, out: Tensor) -> Value:
    # Whatever turns complex numbers mixes the two coordinates of a plane.
    reading.silence(freeze(x.dims[-1]))
    return Value(list(x.dims[:-1]), out)


@rule("view_as_real")
def _view_as_real(reading: Reading, x: Value, *, out: Tensor) -> Value:
    return Value([*x.dims, fresh(2, is_fixed=True)], out)
