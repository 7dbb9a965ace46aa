"""Training and evaluating language models, masked and causal."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from fusionlab.evaluation.losses import class_loss, shifted
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.forward import IGNORED, LABELS
from fusionlab.tasks.fine_tuning import FineTuning
from fusionlab.tasks.models import transformers_model
from fusionlab.tasks.predictions import number_rows
from fusionlab.types import Batch


class LanguageModel(FineTuning):
    """The base of all kinds: the cross-entropy of tokens whose label is not -100."""

    head_class: Any
    """The transformers class that adds the head."""

    def __init__(self, model: str | dict[str, Any], **training: Any) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, or the description of a fresh model such as
                ``{model_type: gpt2, n_embd: 256, n_layer: 6, n_head: 4}``.
            training: learning rate and schedule, see `FineTuning`.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__(**training)
        self.save_hyperparameters()
        self.model = transformers_model(model, self.head_class)
        self._ready(model)

    def scores(self) -> Scores:
        """Loss and perplexity."""
        return make_scores(self.model, self.task)

    def aligned(self, output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits beside the labels that they are about."""
        return output, labels

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """The mean over tokens, in nats; 0 where none is labelled."""
        return class_loss(*self.aligned(output, labels))

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> Tensor:
        """Loss, perplexity and number of labelled tokens of each text, of shape ``(batch, 3)``."""
        output, labels = self.aligned(self(batch), batch[LABELS])
        entries = cross_entropy(output.float().transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
        tokens = (labels != IGNORED).sum(-1)
        losses = entries.sum(-1) / tokens
        return torch.stack([losses, losses.exp(), tokens], -1)

    def prediction_rows(self, batches: Sequence[Tensor]) -> Iterator[list[Any]]:
        """Loss and perplexity of each text; nothing for one in which no token is labelled, such as none masked."""
        known = (count > 0 for batch in batches for count in batch[:, 2].tolist())
        header, *rows = number_rows([batch[:, :2] for batch in batches], "loss", "perplexity")
        yield header
        for row, is_known in zip(rows, known, strict=True):
            yield row if is_known else [row[0], "", ""]


class MaskedLanguageModelling(LanguageModel):
    """Train a model to fill in masked tokens (Devlin et al., "BERT", 2019).

    Batches hold ``input_ids`` with tokens masked, and ``labels``: the true tokens where they are to be filled in, else
    -100; both of shape ``(batch, tokens)``. Logged are ``train/loss``, ``val/`` and ``test/`` with ``loss`` and
    ``perplexity``.
    """

    task = "masked_lm"
    head_class = AutoModelForMaskedLM


class CausalLanguageModelling(LanguageModel):
    """Train a model to give the next token.

    Batches hold ``input_ids`` and ``labels`` (the same tokens, -100 for padding; the shift by one is made here), both
    of shape ``(batch, tokens)``. Logged are ``train/loss``, ``val/`` and ``test/`` with ``loss`` and ``perplexity``.
    """

    task = "causal_lm"
    head_class = AutoModelForCausalLM

    def aligned(self, output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's logits beside the next token."""
        return shifted(output, labels)
