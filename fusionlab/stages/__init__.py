"""Stages: passes over data and descents that one fit of a Trainer runs one after another."""

from fusionlab.stages.module import RETURNS_NOTHING, StagedModule
from fusionlab.stages.running import TrainerFactory, run
from fusionlab.stages.stage import Run, Stage, Stages, placed, result_of

__all__ = ["RETURNS_NOTHING", "Run", "Stage", "StagedModule", "Stages", "TrainerFactory", "placed", "result_of", "run"]
