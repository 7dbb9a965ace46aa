"""LightningModules that fine-tune and evaluate end models, one for each kind of task."""

from fusionlab.tasks.export import ExportCheckpoint
from fusionlab.tasks.fine_tuning import FineTuning
from fusionlab.tasks.image_classification import ImageClassification
from fusionlab.tasks.language_modelling import CausalLanguageModelling, MaskedLanguageModelling
from fusionlab.tasks.question_answering import QuestionAnswering
from fusionlab.tasks.sequence_classification import SequenceClassification
from fusionlab.tasks.sequence_to_sequence import SequenceToSequence
from fusionlab.tasks.token_classification import TokenClassification
from fusionlab.tasks.zero_shot_classification import ZeroShotImageClassification

__all__ = [
    "CausalLanguageModelling",
    "ExportCheckpoint",
    "FineTuning",
    "ImageClassification",
    "MaskedLanguageModelling",
    "QuestionAnswering",
    "SequenceClassification",
    "SequenceToSequence",
    "TokenClassification",
    "ZeroShotImageClassification",
]
