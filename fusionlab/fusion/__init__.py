"""Fusion: match, merge, correct, polish and test end models side by side."""

from fusionlab.fusion.base_model import BaseModel
from fusionlab.fusion.data import Data, FusionData
from fusionlab.fusion.fuser import Fuser
from fusionlab.fusion.heads import STRATEGIES, HeadStrategy, TaskModels
from fusionlab.fusion.module import FusionModule
from fusionlab.fusion.plan import FusionPlan, Heads
from fusionlab.fusion.results import Candidate, Fused, Matched, TestSet
from fusionlab.fusion.testing import CandidateTest

__all__ = [
    "STRATEGIES",
    "BaseModel",
    "Candidate",
    "CandidateTest",
    "Data",
    "Fused",
    "Fuser",
    "FusionData",
    "FusionModule",
    "FusionPlan",
    "HeadStrategy",
    "Heads",
    "Matched",
    "TaskModels",
    "TestSet",
]
