"""The strategy of a Trainer whose processes share out models, and those that are refused."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fusionlab.errors import InputError

NAME = "fsdp"
# Names of strategies that spread the parameters of one model over processes begin so.
SHARDING = (NAME, "deepspeed")
# A parameter's number in glibc's malloc.h; larger blocks than so many bytes are returned when they are freed.
_M_MMAP_THRESHOLD, _GIVEN_BACK = -3, 2**20


class ShardingStrategy(DDPStrategy):
    """The strategy of a Trainer whose processes share out batches, and the parameters of what each stage runs.

    It is what the name ``fsdp`` stands for here. The module of the fit holds next to nothing itself, so it stays whole
    in every process and in a checkpoint, as under ``ddp``; stages share out their models (`fusionlab.stages.placed`).
    Lightning's own strategies share out what the module holds, ask for GPUs and know fewer precisions.
    """

    def setup_environment(self) -> None:
        """Begin the processes; on processors, let each give back memory once it is free."""
        super().setup_environment()
        if self.root_device.type == "cpu":
            _give_back_memory()

    @cached_property
    def mesh(self) -> DeviceMesh:
        """All processes, in one dimension, once they have begun."""
        return init_device_mesh(self.root_device.type, (self.world_size,))


def _give_back_memory() -> None:
    """Have the C library return freed tensors to the system at once, where it is glibc.

    It keeps what is freed below a bound that it raises to 32 MiB by itself. Layers that are gathered and let go in turn
    would add up to whole models there.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _GIVEN_BACK)


def strategy_of(given: Any) -> Any:
    """A strategy in words that a Trainer takes on every device: Lightning's own ``fsdp`` asks for GPUs.

    Args:
        given: a strategy or its name, None for Lightning's choice.
    """
    return ShardingStrategy() if given == NAME else given


def refuse_sharding(strategy: object) -> None:
    """Refuse a strategy that spreads the parameters of one model over processes in a way of its own.

    Such a strategy spreads the module of a Trainer, of which end models are no part.

    Args:
        strategy: of a Trainer: its name, or itself.

    Raises:
        InputError: FSDP in Lightning's forms, DeepSpeed, or model parallelism.
    """
    if strategy == NAME or isinstance(strategy, ShardingStrategy):
        return
    is_named = isinstance(strategy, str) and strategy.startswith(SHARDING)
    if is_named or isinstance(strategy, FSDPStrategy | DeepSpeedStrategy | ModelParallelStrategy):
        name = strategy if is_named else type(strategy).__name__
        raise InputError(
            f"strategy is {name}, which spreads the one module of a Trainer over processes, and no end model; expected "
            f"{NAME} (in Python fusionlab.sharding_strategy.ShardingStrategy()), which shares out end models and what "
            f"is trained, or ddp, which shares the batches"
        )
