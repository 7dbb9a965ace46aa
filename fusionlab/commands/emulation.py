"""A note on passes in bfloat16 on a processor that has none."""

from __future__ import annotations

from lightning.pytorch import Trainer

from fusionlab.bfloat16 import emulation_told
from fusionlab.commands.console import tell


def tell_emulation(trainer: Trainer) -> None:
    """Tell on standard error, in one process, that a Trainer's precision costs time on this processor.

    Args:
        trainer: of the command.
    """
    if trainer.is_global_zero and (told := emulation_told(trainer)) is not None:
        tell(f"{told}.")
