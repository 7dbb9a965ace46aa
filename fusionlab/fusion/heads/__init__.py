"""Three ways to treat the heads of the models that are fused."""

from fusionlab.fusion.heads.merged import MergedHeads
from fusionlab.fusion.heads.own import OwnHeads, TaskModels
from fusionlab.fusion.heads.strategy import HeadStrategy
from fusionlab.fusion.heads.union import UnionHeads
from fusionlab.fusion.plan import Heads

__all__ = ["STRATEGIES", "HeadStrategy", "MergedHeads", "OwnHeads", "TaskModels", "UnionHeads"]

STRATEGIES: dict[Heads, type[HeadStrategy]] = {"merged": MergedHeads, "union": UnionHeads, "own": OwnHeads}
