"""Fine-tuning and evaluating models that find the answer to a question in a text."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from transformers import AutoModelForQuestionAnswering

from fusionlab.data.question_answering import place_of_none
from fusionlab.evaluation.answer_scores import best_spans
from fusionlab.evaluation.losses import class_loss
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.tasks.fine_tuning import FineTuning
from fusionlab.tasks.models import label_fields, transformers_model
from fusionlab.tasks.predictions import answer_rows
from fusionlab.types import Batch


class QuestionAnswering(FineTuning):
    """Train a model to say where an answer begins and ends, by cross-entropy over tokens (Devlin et al., "BERT", 2019).

    Batches hold what the tokenizer gives for question and context, of shape ``(batch, tokens)``, and ``labels`` of
    shape ``(batch, 2)``, as `fusionlab.data.QuestionAnswering` makes them. Logged are ``train/loss``, ``val/`` and
    ``test/`` with ``loss``, ``f1`` and ``exact_match``. Predictions are the answers.
    """

    task = "question_answering"

    def __init__(self, model: str | dict[str, Any], **training: Any) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, or the description of a fresh model such as
                ``{model_type: bert, hidden_size: 128}``. A head of another task is replaced.
            training: learning rate and schedule, see `FineTuning`.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__(**training)
        self.save_hyperparameters()
        self.model = transformers_model(model, AutoModelForQuestionAnswering, label_fields(2, None))
        self._ready(model)

    def scores(self) -> Scores:
        """Loss, F1 and exact matches."""
        return make_scores(self.model, self.task)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """The mean over both ends of all known answers, in nats; 0 where none is known."""
        return class_loss(output, labels)

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> tuple[list[str], Tensor]:
        """The answers, empty where the context holds none, and their probabilities, of shape ``(batch,)``."""
        output = self(batch).float()
        spans = best_spans(output)
        chances = output.softmax(-1).gather(2, spans[:, :, None]).squeeze(2).prod(1)
        return self._words(batch["input_ids"], spans), chances

    def _words(self, tokens: Tensor, spans: Tensor) -> list[str]:
        """The tokens of each answer as a text; as numbers where the data have no tokenizer."""
        tokenizer: Any = self.data().tokenizer
        rows = []
        for row, (first, last) in zip(tokens.tolist(), spans.tolist(), strict=True):
            is_none = first == last == place_of_none(row, tokenizer)
            rows.append([] if is_none else row[first : last + 1])
        if tokenizer is None:
            return [" ".join(map(str, row)) for row in rows]
        return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]

    def prediction_rows(self, batches: Sequence[Any]) -> Iterator[list[Any]]:
        """The answer to each question, and its probability."""
        return answer_rows(batches)
