"""Norms with gains and biases."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from torch import Tensor

from fusionlab.symmetry.infer.dims import Dim, Exponent, plus, resolve
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.rules.pointwise import combined
from fusionlab.symmetry.infer.unify import chop
from fusionlab.symmetry.infer.values import Value, rule


def _normed(reading: Reading, x: Value, gain: Any, bias: Any, over: Sequence[int], out: Tensor) -> Value:
    """A norm of the dimensions `over` (negative), then gain and bias along them."""
    dims = list(x.dims)
    for d in over:
        dims[d] = resolve(dims[d]) if reading.mode == "sign" else reading.silence(dims[d])
    result = Value(dims, out)
    if isinstance(gain, Value):
        if gain.parameter:
            reading.notes.gains.add(gain.parameter)
        result = combined(reading, [result, _laid_out(gain, over, len(dims))], "mul", out)
    if isinstance(bias, Value):
        result = combined(reading, [result, _laid_out(bias, over, len(dims))], "add", out)
    return result


def _laid_out(vector: Value, over: Sequence[int], count: int) -> Value:
    """A vector with dimensions of length 1 put between its own, as it is broadcast."""
    positions = {d: position for position, d in enumerate(over)}
    shape = [vector.tensor.shape[positions[d]] if d in positions else 1 for d in range(-count, 0)]
    dims: list[Dim] = [vector.dims[positions[d]] if d in positions else () for d in range(-count, 0)]
    return Value(dims, vector.tensor.reshape(shape))


def _with_rest(value: Value, out: Any) -> Any:
    return (value, *out[1:]) if isinstance(out, tuple | list) else value


def _first(out: Any) -> Tensor:
    return out[0] if isinstance(out, tuple | list) else out


@rule("native_layer_norm", "layer_norm")
def _layer_norm(
    reading: Reading, x: Value, shape: Any, gain: Any = None, bias: Any = None, *rest: Any, out: Any
) -> Any:
    return _with_rest(_normed(reading, x, gain, bias, range(-len(shape), 0), _first(out)), out)


@rule("_fused_rms_norm", "rms_norm")
def _rms_norm(reading: Reading, x: Value, shape: Any, gain: Any = None, *rest: Any, out: Any) -> Any:
    return _with_rest(_normed(reading, x, gain, None, range(-len(shape), 0), _first(out)), out)


@rule("native_group_norm", "group_norm")
def _group_norm(reading: Reading, x: Value, *args: Any, out: Any) -> Any:
    gain, bias = args[:2] if reading.operation == "native_group_norm" else args[1:3]
    groups = args[5] if reading.operation == "native_group_norm" else args[0]
    channels: Dim = tuple(chain.from_iterable(chop(x.dims[1], x.tensor.shape[1] // groups)))
    x = Value([x.dims[0], channels, *x.dims[2:]], x.tensor)
    return _with_rest(_normed(reading, x, gain, bias, [1 - x.tensor.ndim], _first(out)), out)


@rule("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "batch_norm")
def _batch_norm(reading: Reading, x: Value, gain: Any, bias: Any, mean: Value, var: Value, *rest: Any, out: Any) -> Any:
    for buffer, times in ((mean, 1), (var, 2)):
        if isinstance(buffer, Value):
            # Signs pass: with those of the mean, and without the variance's. Factors meet the constant beside it.
            signs = partial(_turned, reading, times)
            reading.join([x.dims[1], buffer.dims[0]], signs if reading.mode == "sign" else reading.none)
    return _with_rest(_normed(reading, x, gain, bias, [1 - x.tensor.ndim], _first(out)), out)


def _turned(reading: Reading, times: int, exponents: list[Exponent]) -> Exponent:
    """The power of what is normed; that of a buffer is `times` as much."""
    normed, buffer = exponents
    reading.zero(plus(buffer, normed, -times))
    return normed


@rule("_weight_norm_interface", "_weight_norm")
def _weight_norm(reading: Reading, v: Value, g: Value, dim: int = 0, *, out: Any) -> Any:
    silent = Value([reading.silence(d) for d in v.dims], v.tensor)
    value = combined(reading, [silent, g], "mul", _first(out))
    return (value, out[1]) if isinstance(out, tuple | list) else value
