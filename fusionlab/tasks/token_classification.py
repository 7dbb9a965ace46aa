"""Fine-tuning and evaluating models that give every word a tag, such as named entities."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForTokenClassification

from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.span_f1 import Mode
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.forward import IGNORED, LABELS
from fusionlab.tasks.class_weights import Balance, WeightedClasses
from fusionlab.tasks.fine_tuning import refuse_out_of_range
from fusionlab.tasks.models import label_fields, transformers_model
from fusionlab.tasks.predictions import tag_rows
from fusionlab.types import Batch


class TokenClassification(WeightedClasses):
    """Train a tagger with cross-entropy, and measure the F1 of whole entities.

    Batches hold what the tokenizer gives and ``labels``, all of shape ``(batch, tokens)``; tokens labelled -100
    (special tokens, padding, all sub-words of a word but the first) do not count. Logged are ``train/loss``, ``val/``
    and ``test/`` with ``loss`` and ``f1`` (``accuracy`` if the labels are no IOB2 tags).
    """

    task = "tokens"

    def __init__(
        self,
        model: str | dict[str, Any],
        labels: list[str],
        *,
        span_mode: Mode = "strict",
        class_weights: Balance | list[float] | None = None,
        label_smoothing: float = 0.0,
        **training: Any,
    ) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, or the description of a fresh model such as
                ``{model_type: bert, hidden_size: 128}``. A head of another task or for other tags is replaced.
            labels: the tags, in order, such as ``[O, B-PER, I-PER]``; stored with the model.
            span_mode: what an ``I-`` tag is that continues no entity: ``strict`` drops it, ``conlleval`` lets an entity
                begin there.
            class_weights: weights in the training loss: ``sqrt`` or ``inverse`` of how often a tag occurs in the
                training data, or one number for each tag.
            label_smoothing: from 0 (none) to below 1.
            training: learning rate and schedule, see `FineTuning`.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__(**training)
        refuse_out_of_range(("the number of labels", len(labels), len(labels) >= 1, "of at least 1"))
        self.save_hyperparameters()
        self.class_names: list[str] = labels
        self.num_classes = len(labels)
        self.span_mode = span_mode
        self._weigh(class_weights, label_smoothing)
        fields = label_fields(len(labels), labels)
        self.model = transformers_model(model, AutoModelForTokenClassification, fields)
        self._ready(model)

    def scores(self) -> Scores:
        """Loss and the F1 of entities."""
        return make_scores(self.model, "tokens", self.class_names, mode=self.span_mode)

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> list[Tensor]:
        """Class numbers of the words of each sentence; labels only say which tokens begin a word."""
        chosen = self(batch).argmax(-1)
        return [row[labels != IGNORED] for row, labels in zip(chosen, batch[LABELS], strict=True)]

    def prediction_rows(self, batches: Sequence[Sequence[Tensor]]) -> Iterator[list[Any]]:
        """One row for each word, under the number of its sentence in the data and its own in that.

        Long sentences are read in pieces; the words of all pieces are those of all sentences, in one order.
        """
        words = [piece for batch in batches for piece in batch]
        data: Any = getattr(self._trainer, "datamodule", None)
        counts = data.word_counts("test") if hasattr(data, "word_counts") else []
        if words and sum(counts) == sum(map(len, words)):
            words = list(torch.cat(words).split(counts))
        return tag_rows([words], self.class_names)
