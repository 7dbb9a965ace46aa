"""After the merge: give the merged model's activations the mean and spread that its end models' have.

Averaging shrinks what units write, layer after layer, because two models' units agree only in part (Jordan et al.,
"REPAIR: renormalizing permuted activations for interpolation repair", 2023). A linear map can hold the correction
itself, in its rows and its bias, so the result is an ordinary checkpoint of the same architecture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import forward
from fusionlab.merging.registry import merge_weights
from fusionlab.models import with_state
from fusionlab.statistics.layout import token_masks
from fusionlab.statistics.linear_maps import LinearMaps, Weight, linear_maps, rows_written
from fusionlab.statistics.watching import explore, hooked
from fusionlab.types import Batch, Model

# A unit whose standard deviation is below this share of its map's is constant as far as can be told: only shifted.
CONSTANT = 1e-4


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of what each unit of a linear map writes, float64, shape ``(units,)``."""

    mean: Tensor
    std: Tensor


@torch.no_grad()
def correct(
    merged: Model,
    twins: Sequence[nn.Module],
    batches: Iterable[Batch],
    weights: Sequence[float] | None = None,
) -> Model:
    """Set mean and standard deviation of every unit to the mean of its end models' (Jordan et al., 2023, section 4).

    Linear maps are corrected one after the other, in the order in which they run, each on what the corrected ones
    before it write. A map without a bias is only scaled. Moments are taken over what is written for data: neither for
    padding nor for relative positions.

    Args:
        merged: a merge of `twins`; not modified.
        twins: the end models in the merged model's basis, so that their units correspond.
        batches: inputs, labels ignored; gone through once for each twin and each map, so no one-way iterator.
        weights: one for each twin, scaled to sum to 1; equal if None.

    Returns:
        A new model of the merged model's class, in eval mode.

    Raises:
        InputError: no batch, or one-way batches.
    """
    if iter(batches) is batches:
        raise InputError("the correction's data can be gone through only once; expected a list or a DataLoader")
    shares = merge_weights(weights, len(twins))
    found = [_moments(model, _maps(model, batches), batches) for model in (_copy(twin) for twin in twins)]
    if not found[0]:
        raise InputError("the correction was given no batch, or a model without linear maps; expected both")
    corrected = _copy(merged)
    maps = _maps(corrected, batches)
    # What has run is listed in the order in which it ran.
    for name in found[0]:
        wanted = Moments(
            torch.stack([share * one[name].mean for share, one in zip(shares, found, strict=True)]).sum(0),
            torch.stack([share * one[name].std for share, one in zip(shares, found, strict=True)]).sum(0),
        )
        only = replace(maps, weights={name: maps.weights[name]})
        _adjust(maps.weights[name], _moments(corrected, only, batches)[name], wanted)
    return corrected


def _copy(model: Model) -> Model:
    return with_state(model, model.state_dict())


def _maps(model: nn.Module, batches: Iterable[Batch]) -> LinearMaps:
    """The linear maps that one module each applies, so that a correction of one changes no other, and what they read.

    Without a batch there are none.
    """
    found = linear_maps(model)
    maps = replace(found, weights={n: w for n, w in found.weights.items() if len(w.modules) == 1})
    first = next(iter(batches), None)
    if first is None:
        return LinearMaps({}, {})
    explore(model, maps, _on_device(first, model))
    return maps


def _on_device(batch: Batch, model: nn.Module) -> dict[str, Tensor]:
    device = next(model.parameters()).device
    return {name: value.to(device) for name, value in batch.items()}


def _moments(model: nn.Module, maps: LinearMaps, batches: Iterable[Batch]) -> dict[str, Moments]:
    """Moments of what linear maps write for data over all batches, in the order in which they run.

    Args:
        model: in eval mode.
        maps: those of its maps to look at, explored.
        batches: inputs.
    """
    sums: dict[str, Tensor] = {}
    for batch in batches:
        _add(model, maps, _on_device(batch, model), sums)
    moments = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        moments[name] = Moments(mean, (squares / count - mean.square()).clamp_min(0).sqrt())
    return moments


def _add(model: nn.Module, maps: LinearMaps, batch: Batch, sums: dict[str, Tensor]) -> None:
    """Add what each map writes for the data of one batch: by unit the count, the sum and the sum of squares."""
    masks, calls = token_masks(batch), Counter[str]()

    def add(weight: Weight, module: nn.Module, read: Tensor, written: Tensor) -> None:
        layout = maps.layouts[weight.name][calls[weight.name]]
        calls[weight.name] += 1
        if layout is None:
            return
        rows = rows_written(module, written)
        valid = layout.valid(masks, rows.shape[:-1])
        rows = rows.flatten(0, -2).double()
        rows = rows if valid is None else rows[valid]
        total = rows.sum(0)
        part = torch.stack((torch.full_like(total, len(rows)), total, rows.square().sum(0)))
        sums[weight.name] = sums[weight.name] + part if weight.name in sums else part

    with hooked(maps, add):
        forward(model, batch)


def _adjust(weight: Weight, found: Moments, wanted: Moments) -> None:
    """Change rows and bias of a linear map so that its units have the wanted moments."""
    module: Any = weight.modules[0]
    varies = found.std > CONSTANT * found.std.max()
    factor = torch.where(varies, wanted.std / torch.where(varies, found.std, 1), 1)
    # Rows lie along dimension 0, in Conv1D along the last.
    shape = [-1 if dim == weight.dim ^ 1 else 1 for dim in range(module.weight.ndim)]
    module.weight.copy_(module.weight.double() * factor.reshape(shape))
    if module.bias is not None:
        module.bias.copy_(factor * (module.bias.double() - found.mean) + wanted.mean)
