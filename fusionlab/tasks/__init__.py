"""LightningModules that fine-tune and evaluate end models, one for each kind of task."""

from fusionlab.tasks.export import ExportCheckpoint
from fusionlab.tasks.image_classification import ImageClassification

__all__ = ["ExportCheckpoint", "ImageClassification"]
