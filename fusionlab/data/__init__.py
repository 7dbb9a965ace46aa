"""LightningDataModules: the hub, local files, and a bundled sample."""

from fusionlab.data.contract import DataFacts, described
from fusionlab.data.digits import Digits
from fusionlab.data.embedding_similarity import EmbeddingSimilarity
from fusionlab.data.emotion import Emotion
from fusionlab.data.glue import GLUE
from fusionlab.data.images import Images
from fusionlab.data.language_modelling import LanguageModelling
from fusionlab.data.ner import NER
from fusionlab.data.overlap import Overlap, overlap
from fusionlab.data.own import OwnData, own_data
from fusionlab.data.question_answering import QuestionAnswering
from fusionlab.data.text_classification import TextClassification
from fusionlab.data.text_to_text import TextToText
from fusionlab.data.union import Union
from fusionlab.data.zero_shot_images import ZeroShotImages

__all__ = [
    "GLUE",
    "NER",
    "DataFacts",
    "Digits",
    "EmbeddingSimilarity",
    "Emotion",
    "Images",
    "LanguageModelling",
    "Overlap",
    "OwnData",
    "QuestionAnswering",
    "TextClassification",
    "TextToText",
    "Union",
    "ZeroShotImages",
    "described",
    "overlap",
    "own_data",
]
