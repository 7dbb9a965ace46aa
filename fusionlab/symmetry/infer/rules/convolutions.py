"""Convolutions, pooling and resizing: channels are hidden spaces, places are not."""

from typing import Any

from torch import Tensor

from fusionlab.symmetry.infer.dims import Dim, freeze, fresh, total
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.rules.pointwise import combined
from fusionlab.symmetry.infer.rules.products import note_map
from fusionlab.symmetry.infer.unify import chop
from fusionlab.symmetry.infer.values import Value, rule


@rule("convolution", "_convolution", "cudnn_convolution", "conv1d", "conv2d", "conv3d")
def _convolution(
    reading: Reading,
    x: Value,
    w: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *rest: Any,
    out: Tensor,
) -> Value:
    for d in [*x.dims[2:], *w.dims[2:]]:
        reading.silence(freeze(d))
    x_groups, x_inner = chop(x.dims[1], x.tensor.shape[1] // groups)
    first, first_inner = chop(w.dims[0], w.tensor.shape[0] // groups)
    read, written = (first_inner, w.dims[1]) if transposed else (w.dims[1], first_inner)
    note_map(reading, w, read, written)
    reading.contract(x_inner, read)
    channels: Dim = reading.join([x_groups, first], total) + written
    result = Value([x.dims[0], channels, *_places(out)], out, weight=w.origin)
    if isinstance(bias, Value):
        if w.origin and bias.origin:
            reading.notes.biases.setdefault(w.origin, bias.origin)
        shape = [-1, *[1] * (out.ndim - 2)]
        laid = Value([bias.dims[0], *[()] * (out.ndim - 2)], bias.tensor.reshape(shape))
        result = combined(reading, [result, laid], "add", out)
    return result


@rule("max_pool2d_with_indices", "max_pool2d", "max_pool1d", "avg_pool1d", "avg_pool2d", "_adaptive_avg_pool2d")
@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "_adaptive_avg_pool3d", "avg_pool3d")
@rule("upsample_bilinear2d", "upsample_nearest2d", "upsample_bicubic2d", "upsample_linear1d", "_upsample_bicubic2d_aa")
@rule("max_pool3d_with_indices", "adaptive_max_pool1d", "adaptive_max_pool3d", "replication_pad2d", "replication_pad3d")
@rule("upsample_nearest3d", "upsample_trilinear3d", "reflection_pad3d", "_upsample_nearest_exact2d")
@rule("upsample_nearest1d", "_upsample_bilinear2d_aa", "reflection_pad1d", "reflection_pad2d", "replication_pad1d")
def _pool(reading: Reading, x: Value, *rest: Any, out: Any, **options: Any) -> Any:
    if "max" in reading.operation:
        reading.rectify(x)
    first = out[0] if isinstance(out, tuple | list) else out
    places = first.ndim - 2 if first.ndim > 2 else 1
    for d in x.dims[-places:]:
        reading.silence(d)
    result = Value([*x.dims[: first.ndim - places], *(fresh(n, is_fixed=True) for n in first.shape[-places:])], first)
    return (result, None) if isinstance(out, tuple | list) else result


@rule("grid_sampler_2d", "grid_sampler_3d")
def _sampled(reading: Reading, x: Value, grid: Value, *rest: Any, out: Tensor) -> Value:
    """Channels read at places that another tensor says."""
    for d in (*x.dims[2:], *combined(reading, [grid], "other", grid.tensor).dims):
        reading.silence(freeze(d))
    return Value([x.dims[0], x.dims[1], *_places(out)], out)


@rule("pixel_shuffle")
def _pixels_from_channels(reading: Reading, x: Value, factor: int, *, out: Tensor) -> Value:
    """Each channel's neighbours in a square become places."""
    channels, square = chop(x.dims[-3], factor**2)
    for d in (*x.dims[-2:], square):
        reading.silence(freeze(d))
    return Value([*x.dims[:-3], channels, *(fresh(n, is_fixed=True) for n in out.shape[-2:])], out)


@rule("pixel_unshuffle")
def _channels_from_pixels(reading: Reading, x: Value, factor: int, *, out: Tensor) -> Value:
    """Squares of places become channels of their own."""
    for d in x.dims[-2:]:
        reading.silence(freeze(d))
    places = (fresh(n, is_fixed=True) for n in out.shape[-2:])
    return Value([*x.dims[:-3], x.dims[-3] + fresh(factor**2, is_fixed=True), *places], out)


@rule("im2col")
def _unfold(reading: Reading, x: Value, *rest: Any, out: Tensor) -> Value:
    """Windows of places: of each channel, as many numbers as a window has."""
    for d in x.dims[2:]:
        reading.silence(freeze(d))
    window = fresh(out.shape[-2] // x.tensor.shape[1], is_fixed=True)
    return Value([x.dims[0], x.dims[1] + window, fresh(out.shape[-1], is_fixed=True)], out)


@rule("col2im")
def _fold(reading: Reading, x: Value, *rest: Any, out: Tensor) -> Value:
    """Windows of places, added where they overlap."""
    channels, window = chop(x.dims[1], x.tensor.shape[1] // out.shape[1])
    for d in (window, x.dims[2]):
        reading.silence(freeze(d))
    return Value([x.dims[0], channels, *_places(out)], out)


@rule("unfold")
def _windows(reading: Reading, x: Value, dim: int, *rest: Any, out: Tensor) -> Value:
    """Windows along one dimension, the places inside of them last."""
    reading.silence(freeze(x.dims[dim]))
    dims = [*x.dims, fresh(out.shape[-1], is_fixed=True)]
    dims[dim % x.tensor.ndim] = fresh(out.shape[dim % x.tensor.ndim], is_fixed=True)
    return Value(dims, out)


@rule("channel_shuffle", "native_channel_shuffle")
def _dealt(reading: Reading, x: Value, groups: int, *, out: Tensor) -> Value:
    """Channels of each group dealt out in turn."""
    outer, inner = chop(x.dims[1], x.tensor.shape[1] // groups)
    return Value([x.dims[0], inner + outer, *x.dims[2:]], out)


def _places(out: Tensor) -> list[Dim]:
    return [fresh(n, is_fixed=True) for n in out.shape[2:]]
