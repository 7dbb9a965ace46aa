"""bfloat16 on a device: whether it has instructions for it, and what is told of a Trainer where it has none."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

_X86 = ("x86_64", "AMD64", "i386", "i686")


def has_bfloat16(device: torch.device) -> bool:
    """True if a device is known to multiply matrices in bfloat16 by instructions of its own.

    Args:
        device: a GPU or the processor; of others nothing is known.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Of ARM's processors torch tells nothing.
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()


def emulation_told(trainer: Trainer) -> str | None:
    """A sentence on a Trainer in bfloat16 whose processor has none; None where there is nothing to say.

    Args:
        trainer: any.
    """
    device, precision = trainer.strategy.root_device, str(trainer.precision)
    if not precision.startswith("bf16") or device.type != "cpu" or has_bfloat16(device):
        return None
    if platform.machine() not in _X86:
        return None
    return (
        f"precision is {precision}, and this processor has no instructions for bfloat16: a pass takes several "
        f"times as long as in 32-true here"
    )
