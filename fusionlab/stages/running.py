"""Running stages by a fit of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lightning.pytorch import Trainer

from fusionlab.stages.module import StagedModule
from fusionlab.stages.stage import Stages
from fusionlab.trainers import quiet_trainer, without_chatter

# Makes a Trainer for stages, wherever some are to be run.
TrainerFactory = Callable[[], Trainer]
Result = TypeVar("Result")


class _Run(StagedModule):
    """Some stages, for a fit of their own."""

    def __init__(self, stages: Stages[Any]) -> None:
        super().__init__()
        self._given = stages

    def stages(self) -> Stages[Any]:
        return self._given


def run(stages: Stages[Result], trainer: TrainerFactory | None = None) -> Result:
    """The result of code that asks for stages, all of them run by one fit.

    Args:
        stages: the code.
        trainer: makes the Trainer, which is asked for only where there is a stage; one quiet process if None.

    Raises:
        InputError: what the stages refuse, a precision that rounds models, or a Trainer that returns nothing.
    """
    module = _Run(stages)
    try:
        module.advance()
        if module.stage is not None:
            if trainer is None:
                with without_chatter():
                    quiet_trainer(devices=1).fit(module)
            else:
                trainer().fit(module)
        found: Result = module.outcome
        return found
    finally:
        module.close()
