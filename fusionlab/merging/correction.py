"""After the merge: give the merged model's activations the mean and spread that its end models' have.

Averaging shrinks what units write, layer after layer, because two models' units agree only in part (Jordan et al.,
"REPAIR: renormalizing permuted activations for interpolation repair", 2023). A linear map can hold the correction
itself, in its rows and its bias, so the result is an ordinary checkpoint of the same architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fusionlab.distillation import token_mask
from fusionlab.errors import InputError
from fusionlab.forward import forward
from fusionlab.merging.registry import merge_weights
from fusionlab.models import with_state
from fusionlab.statistics.linear_maps import Weight, linear_maps, rows_written
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import spaces_of

Model = TypeVar("Model", bound=nn.Module)
Batch = Mapping[str, Tensor]
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
    *,
    blueprint: Blueprint | None = None,
    roles: Sequence[str] | None = None,
) -> Model:
    """Set mean and standard deviation of every unit to the mean of its end models' (Jordan et al., 2023, section 4).

    Linear maps are corrected one after the other, in the order in which they run, each on what the corrected ones
    before it write. A map without a bias is only scaled.

    Args:
        merged: a merge of `twins`; not modified.
        twins: the end models in the merged model's basis, so that their units correspond.
        batches: inputs, labels ignored; gone through once for each twin and each map, so no one-way iterator.
        weights: one for each twin, scaled to sum to 1; equal if None.
        blueprint: of all of them; needed for `roles`.
        roles: only maps that write to spaces of these roles, such as ``ffn`` or ``residual``; if None all maps, that of
            the classifier among them.

    Returns:
        A new model of the merged model's class, in eval mode.

    Raises:
        InputError: no batch, one-way batches, or roles without a blueprint.
    """
    if iter(batches) is batches:
        raise InputError("the correction's data can be gone through only once; expected a list or a DataLoader")
    if roles is not None and blueprint is None:
        raise InputError("the correction was given roles without a blueprint; expected both")
    shares = merge_weights(weights, len(twins))
    found = [_moments(with_state(twin, twin.state_dict()), batches) for twin in twins]
    if not found[0]:
        raise InputError("the correction was given no batch, or a model without linear maps; expected both")
    corrected = with_state(merged, merged.state_dict())
    maps = _maps(corrected)
    # What has run is listed in the order in which it ran.
    for name in found[0]:
        if roles is None or blueprint is None or _writes_to(blueprint, name, maps[name].dim, roles):
            wanted = Moments(
                torch.stack([share * one[name].mean for share, one in zip(shares, found, strict=True)]).sum(0),
                torch.stack([share * one[name].std for share, one in zip(shares, found, strict=True)]).sum(0),
            )
            _adjust(maps[name], _moments(corrected, batches, name)[name], wanted)
    return corrected


def _maps(model: nn.Module) -> dict[str, Weight]:
    """The linear maps that one module each applies, so that a correction of one changes no other."""
    return {name: weight for name, weight in linear_maps(model).weights.items() if len(weight.modules) == 1}


def _moments(model: nn.Module, batches: Iterable[Batch], only: str | None = None) -> dict[str, Moments]:
    """Moments of what linear maps write over all batches, in the order in which they run.

    Args:
        only: the name of the one map to look at; all if None.
    """
    device = next(model.parameters()).device
    sums: dict[str, Tensor] = {}
    for batch in batches:
        inputs = {name: value.to(device) for name, value in batch.items()}

        def add(name: str, written: Tensor, inputs: Batch = inputs) -> None:
            mask = token_mask(written[..., 0], inputs)
            rows = (written if mask is None else written[mask.bool()]).flatten(0, -2).double()
            part = torch.stack((torch.full_like(rows[0], len(rows)), rows.sum(0), rows.square().sum(0)))
            sums[name] = sums[name] + part if name in sums else part

        with _watched(model, only, add):
            forward(model, inputs)
    moments = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        moments[name] = Moments(mean, (squares / count - mean.square()).clamp_min(0).sqrt())
    return moments


@contextmanager
def _watched(model: nn.Module, only: str | None, add: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Hand what each linear map writes to `add`, as ``(..., units)``."""

    def hook(name: str) -> Callable[..., None]:
        def on_forward(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            add(name, rows_written(module, output))

        return on_forward

    maps = {name: weight for name, weight in _maps(model).items() if only in (None, name)}
    handles = [weight.modules[0].register_forward_hook(hook(name)) for name, weight in maps.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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


def _writes_to(blueprint: Blueprint, name: str, dim: int, roles: Sequence[str]) -> bool:
    spaces = spaces_of(blueprint.parameters[name][dim ^ 1])
    return any(blueprint.spaces[space].role == role for space in spaces for role in roles)
