"""Training and evaluating models that make texts of other texts."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from fusionlab.decoder_inputs import told_start
from fusionlab.errors import InputError
from fusionlab.forward import LABELS
from fusionlab.tasks.fine_tuning import refuse_out_of_range
from fusionlab.tasks.language_modelling import LanguageModel
from fusionlab.tasks.predictions import text_rows
from fusionlab.types import Batch

DECODER = "decoder_"


class SequenceToSequence(LanguageModel):
    """Train a model with an encoder and a decoder to give each token of a target (Sutskever et al., 2014).

    Batches hold ``input_ids`` of shape ``(batch, tokens)``, and ``decoder_input_ids`` and ``labels`` of shape ``(batch,
    target tokens)``, as `fusionlab.data.TextToText` makes them; -100 for padding. Logged are ``train/loss``, ``val/``
    and ``test/`` with ``loss`` and ``perplexity`` of the targets. Predictions are the texts that the model writes.
    """

    task = "seq2seq"
    head_class = AutoModelForSeq2SeqLM

    def __init__(self, model: str | dict[str, Any], max_new_tokens: int = 128, **training: Any) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, or the description of a fresh model such as
                ``{model_type: t5, d_model: 256, num_layers: 4, num_heads: 4}``.
            max_new_tokens: most tokens of a predicted text, at least 1. How it is searched for follows from the
                ``generation_config.json`` beside the model; without one the most probable token is taken each time.
            training: learning rate and schedule, see `FineTuning`.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__(model, **training)
        refuse_out_of_range(("max_new_tokens", max_new_tokens, max_new_tokens >= 1, "of at least 1"))
        self.max_new_tokens = max_new_tokens

    def setup(self, stage: str) -> None:
        """Compare the data module with the model; a fresh one takes from it the tokens that begin, end and pad texts.

        Raises:
            InputError: the data have the decoder begin with another token than the model.
        """
        super().setup(stage)
        data, model = self.data(), self.model
        start, config = data.decoder_start, getattr(model, "config", None)
        if start is None or config is None:
            return
        known = told_start(config)
        if known not in (None, start):
            raise InputError(
                f"the decoder of the model begins with the token {known}, and that of the data {data.name} with "
                f"{start}; expected data.decoder_start: {known}"
            )
        tokenizer, is_fresh = data.tokenizer, self._source is None
        tokens = {
            "decoder_start_token_id": start if known is None and start != "last" else None,
            "eos_token_id": tokenizer.eos_token_id if is_fresh and tokenizer is not None else None,
            "pad_token_id": tokenizer.pad_token_id if is_fresh and tokenizer is not None else None,
        }
        for part in filter(None, (config, getattr(model, "generation_config", None))):
            for name, token in tokens.items():
                if token is not None:
                    setattr(part, name, token)

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> tuple[list[str], Tensor]:  # type: ignore[override]
        """The texts that the model writes, and the mean loss of each target's tokens, of shape ``(batch,)``."""
        read = {name: value for name, value in batch.items() if name != LABELS and not name.startswith(DECODER)}
        first = batch["decoder_input_ids"][:, :1]
        model: Any = self.model
        with torch.no_grad():
            tokens = model.generate(**read, decoder_input_ids=first, max_new_tokens=self.max_new_tokens)
        losses = super().predict_step(batch, batch_index)[:, 0]
        return self._written(tokens[:, first.shape[1] :]), losses

    def _written(self, tokens: Tensor) -> list[str]:
        """Tokens as texts; as numbers where the data have no tokenizer."""
        tokenizer: Any = self.data().tokenizer
        if tokenizer is None:
            return [" ".join(map(str, row)) for row in tokens.tolist()]
        return list(tokenizer.batch_decode(tokens, skip_special_tokens=True))

    def prediction_rows(self, batches: Sequence[Any]) -> Iterator[list[Any]]:
        """The text that was written for each sample, and the loss of its target."""
        return text_rows(batches)
