"""Experts in one tensor as changes of a low rank: of a difference, and of the mean of several changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fusionlab.checkpoints.changes import Stack
from fusionlab.checkpoints.truncation import truncated, truncated_product
from fusionlab.checkpoints.wrapped import is_turned

Factors = tuple[Tensor, Tensor]
# Names that linear layers of experts had before they became one tensor, by which PEFT finds that tensor.
_ONCE = {"gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"}


def is_stacked(module: nn.Module, differing: Collection[str], base: Mapping[str, Tensor | None]) -> bool:
    """True where what differs in a module are experts in one tensor, and at most matrices beside them.

    Args:
        module: that holds parameters of its own.
        differing: those that differ, or buffers.
        base: the same of the base model; None where it has none.
    """
    own = dict(module.named_parameters(recurse=False))
    for name in differing:
        before = base[name]
        if name not in own or own[name].ndim not in (2, 3) or before is None or before.shape != own[name].shape:
            return False
    sizes = [len(parameter) for parameter in own.values() if parameter.ndim == 3]
    # Tables of embeddings have three dimensions too, and others look into their modules, which a wrapping would hide.
    are_experts = hasattr(module, "is_transposed") or (len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0] > 1)
    return are_experts and any(own[name].ndim == 3 for name in differing)


def like_experts(model: nn.Module, layers: Iterable[str]) -> frozenset[str]:
    """The linear layers of a model with experts in one tensor that have names which experts once had.

    Args:
        model: of the class.
        layers: names of layers.
    """
    if not any(hasattr(module, "is_transposed") for module in model.modules()):
        return frozenset()
    named = [name for name in layers if name.rpartition(".")[2] in _ONCE]
    return frozenset(name for name in named if isinstance(model.get_submodule(name), nn.Linear))


def extracted_stack(after: Tensor, before: Tensor, module: nn.Module, rank: int) -> tuple[Stack, float]:
    """The best change of each expert's matrix of a rank, and the share of the difference's norm that they have.

    Args:
        after: the parameter, ``(experts, rows, columns)``, or ``(rows, columns)`` as of one expert; not all as before.
        before: of the base model.
        module: of the class that holds it.
        rank: of every expert's product, at least 1.
    """
    experts = len(after) if after.ndim == 3 else 1
    turned = is_turned(module, experts)
    rows, columns = after.shape[-2:]
    factors, kept, whole = [], 0.0, 0.0
    for new, old in zip(after.reshape(-1, rows, columns), before.reshape(-1, rows, columns), strict=True):
        difference = (new.double() - old.double()).to(torch.promote_types(new.dtype, torch.float32))
        length = float(difference.double().norm())
        if length == 0:  # nothing to decompose
            factors.append((torch.zeros(1, columns), torch.zeros(rows, 1)))
        else:
            down, up, share = truncated(difference, rank)
            kept, whole = kept + (share * length) ** 2, whole + length**2
            factors.append((down, up))
        if turned:
            down, up = factors[-1]
            factors[-1] = up.T, down.T
    return _stacked(factors, turned), math.sqrt(kept / whole)


def merged_stack(own: Sequence[tuple[float, Stack]], rank: int) -> tuple[Stack, float] | None:
    """The sum of changes of one parameter, truncated to a rank from their factors, and the share that is kept.

    Args:
        own: each with its weight; all of one shape.
        rank: of every expert's product, at least 1.

    Returns:
        None where the ranks together are no less than the matrices' own.
    """
    first = own[0][1]
    factors, kept, whole = [], 0.0, 0.0
    for number in range(len(first.down)):
        up = torch.cat([weight * one.scale * one.up[number].double() for weight, one in own], dim=1)
        down = torch.cat([one.down[number].double() for _, one in own])
        if len(down) >= min(up.shape[0], down.shape[1]):
            return None
        short, tall, share = truncated_product(up, down, rank)
        length = float(((up.T @ up) * (down @ down.T)).sum().clamp_min(0).sqrt())
        kept, whole = kept + (share * length) ** 2, whole + length**2
        factors.append((short, tall))
    return _stacked(factors, first.is_turned), math.sqrt(kept / whole) if whole else 1.0


def _stacked(factors: Sequence[Factors], is_turned: bool) -> Stack:
    """One change of factors of each expert, filled up with zeros to the largest rank."""
    most = max(len(down) for down, _ in factors)
    down = torch.stack([nn.functional.pad(down, (0, 0, 0, most - len(down))) for down, _ in factors])
    up = torch.stack([nn.functional.pad(up, (0, most - up.shape[1])) for _, up in factors])
    return Stack(down, up, 1.0, is_turned)
