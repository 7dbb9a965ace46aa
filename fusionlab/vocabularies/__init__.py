"""One vocabulary for several language models: their tokens, the rows that stand for them, and a tokenizer."""

from fusionlab.vocabularies.joining import CHOICES, Joined, join
from fusionlab.vocabularies.tokens import Vocabulary, vocabulary_of

__all__ = ["CHOICES", "Joined", "Vocabulary", "join", "vocabulary_of"]
