"""Finiteness of many numbers, told by their sums: one pass over them, and nothing of their size is made."""

from pathlib import Path

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError

# Numbers that are summed together, few enough to lie in a processor's cache.
_PIECE = 2**18


def all_finite(tensor: Tensor) -> bool:
    """True if no number of a tensor is NaN or infinite.

    A sum with NaN or an infinity among its terms is one itself. A sum of finite numbers may overflow, so where it is
    not finite its terms are looked at.

    Args:
        tensor: any shape; floating point of at least 16 bits, or integers, which are always finite.
    """
    if not tensor.is_floating_point():
        return True
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return all(
        bool(torch.isfinite(piece.sum(dtype=wide))) or bool(torch.isfinite(piece).all())
        for piece in tensor.detach().reshape(-1).split(_PIECE)
    )


def refuse_not_finite(source: str | Path, model: nn.Module) -> None:
    """Refuse a model with NaN or infinite parameters.

    Args:
        source: where it was read from.
        model: the model.

    Raises:
        InputError: names the first such parameter in the model's own order, and how many of its values are bad.
    """
    for name, parameter in model.named_parameters():
        # 8-bit floats have no isfinite kernel; nothing here loads them as parameters.
        if not parameter.is_floating_point() or parameter.element_size() < 2:
            continue
        if not all_finite(parameter):
            raise not_finite(source, name, int((~torch.isfinite(parameter)).sum()), parameter.numel())


def not_finite(source: str | Path, name: str, bad: int, count: int) -> InputError:
    """The sentence for a parameter with values that are NaN or infinite.

    Args:
        source: where the model was read from.
        name: of the parameter.
        bad: how many of its values are.
        count: how many it has.
    """
    return InputError(
        f"{source}: parameter {name} holds {bad} value{'s' if bad > 1 else ''} of {count} that are NaN or infinite, "
        f"but finite numbers were expected"
    )
