"""After the merge: give the merged model's activations the mean and spread that its end models' have.

Averaging shrinks what units write, layer after layer, because two models' units agree only in part (Jordan et al.,
"REPAIR: renormalizing permuted activations for interpolation repair", 2023). A linear map can hold the correction
itself, in its rows and its bias, and so can a BatchNorm, in its gain and bias, so the result is an ordinary checkpoint
of the same architecture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fusionlab.batch_norm import batch_norms, channels_last, norms_hooked
from fusionlab.errors import InputError
from fusionlab.forward import forward, with_decoder_tokens
from fusionlab.merge_weights import merge_weights
from fusionlab.models import with_state
from fusionlab.statistics.exploring import explore
from fusionlab.statistics.layout import token_masks
from fusionlab.statistics.linear_maps import LinearMaps, Weight, linear_maps, rows_written
from fusionlab.statistics.watching import hooked
from fusionlab.types import Batch, Model

# A unit whose standard deviation is below this share of its map's is constant as far as can be told: only shifted.
CONSTANT = 1e-4


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of each unit of a linear map or channel of a BatchNorm, float64, ``(units,)``."""

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

    Linear maps and BatchNorms are corrected one after the other, in the order in which they run, each on what the
    corrected ones before it write. A map without a bias is only scaled, one that a BatchNorm normalises is left to
    that. A BatchNorm gets the running statistics of what it reads in the merge; its gain and bias then bring what it
    writes (before an activation that it may hold) to the wanted moments. Moments of a linear map are taken over what
    is written for data, neither for padding nor for relative positions; those of a BatchNorm over all it normalises.

    Args:
        merged: a merge of `twins`; not modified.
        twins: the end models in the merged model's basis, so that their units correspond.
        batches: inputs, labels ignored; gone through once for each twin, each map and each BatchNorm, so no one-way
            iterator.
        weights: one for each twin, scaled to sum to 1; equal if None.

    Returns:
        A new model of the merged model's class, in eval mode.

    Raises:
        InputError: no batch, or one-way batches.
    """
    if iter(batches) is batches:
        raise InputError("the correction's data can be gone through only once; expected a list or a DataLoader")
    shares = merge_weights(weights, len(twins))
    found = [_written(model, _sites(model, batches), batches) for model in (_copy(twin) for twin in twins)]
    if not found[0]:
        raise InputError("the correction was given no batch, or a model without linear maps; expected both")
    corrected = _copy(merged)
    sites = _sites(corrected, batches)
    # What has run is listed in the order in which it ran.
    for name in found[0]:
        wanted = Moments(
            torch.stack([share * one[name].mean for share, one in zip(shares, found, strict=True)]).sum(0),
            torch.stack([share * one[name].std for share, one in zip(shares, found, strict=True)]).sum(0),
        )
        seen = _moments(corrected, sites.only(name), batches)[name]
        if name in sites.norms:
            _renormalise(sites.norms[name], seen, wanted)
        else:
            _adjust(sites.maps.weights[name], seen, wanted)
    return corrected


@dataclass(frozen=True)
class _Sites:
    """The places where activations are corrected: linear maps by their weights' names, and BatchNorms by theirs."""

    maps: LinearMaps
    norms: Mapping[str, _BatchNorm]

    def only(self, name: str) -> _Sites:
        """One of them."""
        weights = {own: weight for own, weight in self.maps.weights.items() if own == name}
        return _Sites(replace(self.maps, weights=weights), {own: n for own, n in self.norms.items() if own == name})


def _copy(model: Model) -> Model:
    return with_state(model, model.state_dict())


def _sites(model: nn.Module, batches: Iterable[Batch]) -> _Sites:
    """The linear maps that one module each applies, so that a correction of one changes no other, and the BatchNorms.

    Without a batch there are none.
    """
    first = next(iter(batches), None)
    if first is None:
        return _Sites(LinearMaps({}, {}), {})
    first, norms = _on_device(first, model), batch_norms(model)
    found = linear_maps(model)
    maps = replace(found, weights={n: w for n, w in found.weights.items() if len(w.modules) == 1})
    normalised = _normalised(model, maps, norms, first)
    maps = replace(maps, weights={n: w for n, w in maps.weights.items() if n not in normalised})
    explore(model, maps, first)
    # Experts that are modules read what is sent to them, as often as it is.
    maps = replace(maps, weights={n: w for n, w in maps.weights.items() if n in maps.layouts})
    return _Sites(maps, norms)


def _normalised(model: nn.Module, maps: LinearMaps, norms: Mapping[str, _BatchNorm], batch: Batch) -> set[str]:
    """The names of linear maps whose output is what a BatchNorm reads."""
    # Tensors are kept, so that no later one takes the identity of one before.
    written: dict[int, tuple[str, Tensor]] = {}
    found = set[str]()

    def wrote(weight: Weight, module: nn.Module, read: Tensor, output: Tensor) -> None:
        written[id(output)] = weight.name, output

    def reads(name: str, read: Tensor) -> None:
        if id(read) in written:
            found.add(written[id(read)][0])

    if norms:
        with hooked(maps, wrote), norms_hooked(norms, reads):
            forward(model, batch)
    return found


def _on_device(batch: Batch, model: nn.Module) -> dict[str, Tensor]:
    device = next(model.parameters()).device
    return {name: value.to(device) for name, value in with_decoder_tokens(model, batch).items()}


def _written(model: nn.Module, sites: _Sites, batches: Iterable[Batch]) -> dict[str, Moments]:
    """Moments of what linear maps and BatchNorms of an end model write, in the order in which they run."""
    found = _moments(model, sites, batches)
    for name in [name for name in found if name in sites.norms]:
        gain, bias = _affine(sites.norms[name])
        found[name] = Moments(gain * found[name].mean + bias, gain.abs() * found[name].std)
    return found


def _affine(norm: Any) -> tuple[Tensor, Tensor]:
    """Factor and summand of what a BatchNorm does to each channel in eval mode, float64."""
    spread = (norm.running_var.double() + norm.eps).sqrt()
    gain = (torch.ones_like(spread) if norm.weight is None else norm.weight.double()) / spread
    bias = torch.zeros_like(spread) if norm.bias is None else norm.bias.double()
    return gain, bias - gain * norm.running_mean.double()


def _moments(model: nn.Module, sites: _Sites, batches: Iterable[Batch]) -> dict[str, Moments]:
    """Moments of what linear maps write for data, and of what BatchNorms read, in the order in which they run.

    Args:
        model: in eval mode.
        sites: those to look at.
        batches: inputs.
    """
    sums: dict[str, Tensor] = {}
    for batch in batches:
        _add(model, sites, _on_device(batch, model), sums)
    moments = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        moments[name] = Moments(mean, (squares / count - mean.square()).clamp_min(0).sqrt())
    return moments


def _add(model: nn.Module, sites: _Sites, batch: Batch, sums: dict[str, Tensor]) -> None:
    """Add what one batch gives at each place: by unit the count, the sum and the sum of squares."""
    masks, calls = token_masks(batch), Counter[str]()

    def add(name: str, rows: Tensor) -> None:
        total = rows.sum(0)
        part = torch.stack((torch.full_like(total, len(rows)), total, rows.square().sum(0)))
        sums[name] = sums[name] + part if name in sums else part

    def wrote(weight: Weight, module: nn.Module, read: Tensor, written: Tensor) -> None:
        layout = sites.maps.layouts[weight.name][calls[weight.name]]
        calls[weight.name] += 1
        if layout is None:
            return
        rows = rows_written(module, written)
        valid = layout.valid(masks, rows.shape[:-1])
        rows = rows.flatten(0, -2).double()
        add(weight.name, rows if valid is None else rows[valid])

    with hooked(sites.maps, wrote), norms_hooked(sites.norms, lambda name, read: add(name, channels_last(read))):
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


def _renormalise(norm: Any, found: Moments, wanted: Moments) -> None:
    """Change a BatchNorm that reads the moments `found` so that it writes the wanted ones.

    A channel that does not vary keeps its running variance and its gain, and is only shifted. Where there is no gain,
    the running statistics alone do it, as far as they can.
    """
    varies = found.std > CONSTANT * found.std.max()
    if norm.weight is None:
        spread = torch.where(varies & (wanted.std > 0), found.std / wanted.std, (norm.running_var + norm.eps).sqrt())
        norm.running_var.copy_((spread.square() - norm.eps).clamp_min(0))
        norm.running_mean.copy_(found.mean - wanted.mean * (norm.running_var.double() + norm.eps).sqrt())
        return
    norm.running_mean.copy_(found.mean)
    norm.running_var.copy_(torch.where(varies, found.std.square(), norm.running_var))
    spread = (norm.running_var.double() + norm.eps).sqrt()
    sign = torch.where(norm.weight < 0, -1, 1)
    norm.weight.copy_(torch.where(varies, sign * wanted.std * spread / found.std, norm.weight))
    # As the running mean was rounded to its type.
    rest = norm.weight.double() / spread * (found.mean - norm.running_mean.double())
    norm.bias.copy_(wanted.mean - rest)
