"""Folding: norm gains and layer scales go into the linear maps beside them, so that the stream may be rotated.

This is no group element (it cannot be undone from the result) but a change of gauge: the same function, as an ordinary
model of the same class whose gains are one.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Along
from fusionlab.symmetry.blueprint import Blueprint, Norm, SymmetryError


@torch.no_grad()
def fold(state: Mapping[str, Tensor], blueprint: Blueprint) -> dict[str, Tensor]:
    """Fold norm gains into what reads them, absorb layer scales, and centre what writes to a centred stream.

    Exact (Ashkboos et al., "SliceGPT", 2024, section 3.1): with gain g and bias c, ``W (g * n(x) + c) + b`` is
    ``(W g) n(x) + (b + W c)``; where a reader has no bias, or zeros stand beside the norm's output, the norm keeps
    ``c / g`` as its own. LayerNorm subtracts the mean over features, so the mean of whatever is written to the stream
    is never seen and can be zero.

    Args:
        state: parameters by name; not modified.
        blueprint: of the model, folded or not.

    Returns:
        A new state of the same function; its gains and layer scales are one.

    Raises:
        SymmetryError: a gain of zero in a norm that keeps its bias; what it adds there has no place to go.
    """
    out = {name: tensor.detach() for name, tensor in state.items()}
    dtypes = {name: tensor.dtype for name, tensor in out.items()}
    for scale in blueprint.layer_scales:
        factor = out[scale.scale].double()
        for name in (scale.weight, blueprint.biases.get(scale.weight)):
            if name is not None:
                out[name] = along(factor, 0, out[name].ndim) * out[name].double()
        out[scale.scale] = torch.ones_like(factor)
    for norm in blueprint.norms:
        fold_norm(out, norm, blueprint.biases)
    inside = {name for norm in blueprint.norms for name in (norm.weight, norm.bias)}
    inside |= {name for name, first in blueprint.same.items() if first in inside}
    for name, axes in blueprint.parameters.items():
        for dim, axis in enumerate(axes):
            if isinstance(axis, Along) and axis.space in blueprint.centred and not axis.is_dual and name not in inside:
                tensor = out[name].double()
                out[name] = tensor - tensor.mean(dim, keepdim=True)
    # Gains and what reads them may be known by their first names alone.
    out |= {name: out[first] for name, first in blueprint.same.items() if name in out and first in out}
    return {name: tensor.to(dtypes[name]).contiguous() for name, tensor in out.items()}


def keeps_bias(norm: Norm, biases: Mapping[str, str]) -> bool:
    """True if a folded norm keeps its bias, divided by its gain, as not all that reads it can take it up.

    Args:
        norm: that is folded.
        biases: of the blueprint.
    """
    return norm.bias is not None and (norm.padded or any(reader.weight not in biases for reader in norm.readers))


def fold_norm(out: dict[str, Tensor], norm: Norm, biases: Mapping[str, str]) -> None:
    """Fold one norm into its readers, in place of the entries of `out`."""
    gain = out[norm.weight].double() + norm.offset
    shift = None if norm.bias is None else out[norm.bias].double()
    kept = keeps_bias(norm, biases)
    if kept and bool((gain == 0).any()):
        raise SymmetryError(f"{norm.weight!r} has a gain of zero and must keep its bias, so it cannot be folded")
    for reader in norm.readers:
        rows = slice(None) if reader.rows is None else slice(*reader.rows)
        weight = out[reader.weight].to(torch.float64, copy=True)
        reading = weight.movedim(reader.dim, -1)[rows]
        copies = reading.shape[-1] // gain.numel()
        if shift is not None and not kept:
            name = biases[reader.weight]
            bias = out[name].to(torch.float64, copy=True)
            bias[rows] += (reading @ shift.repeat(copies)).reshape(bias[rows].shape)
            out[name] = bias
        reading *= gain.repeat(copies)
        out[reader.weight] = weight
    out[norm.weight] = torch.full_like(gain, 1 - norm.offset)
    if norm.bias is not None and shift is not None:
        out[norm.bias] = shift / gain if kept else torch.zeros_like(shift)


def along(vector: Tensor, dim: int, dims: int) -> Tensor:
    """`vector` shaped to broadcast along dimension `dim` of a tensor with `dims` dimensions."""
    return vector.reshape([-1 if d == dim else 1 for d in range(dims)])
