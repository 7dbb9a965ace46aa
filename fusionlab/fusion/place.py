"""The workplace of a fusion: what its Trainer runs on."""

import torch
from lightning.pytorch import Trainer

from fusionlab.mapped import MappedFiles
from fusionlab.matching.team import ALONE, Processes
from fusionlab.matching.workplace import Workplace
from fusionlab.sharding_strategy import ShardingStrategy


def workplace_of(trainer: Trainer) -> Workplace:
    """The device and the processes of a Trainer, which has begun, for matching."""
    device: torch.device = trainer.strategy.root_device
    team = Processes() if trainer.world_size > 1 and torch.distributed.is_initialized() else ALONE
    files = MappedFiles(trainer.strategy) if isinstance(trainer.strategy, ShardingStrategy) else None
    # Other devices compute nothing in float64, which decompositions take.
    return Workplace(device if device.type == "cuda" else None, team, files if team.size > 1 else None)
