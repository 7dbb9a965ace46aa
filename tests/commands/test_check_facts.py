"""Facts about one checkpoint, as `fusionlab check` tells them."""

from pathlib import Path

import pytest
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
)

from fusionlab import checkpoints
from fusionlab.commands.check_facts import facts_of

ROBERTA = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
GPT2 = {"vocab_size": 9, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (GPT2LMHeadModel(GPT2Config(**GPT2)), True),
        (GPT2LMHeadModel(GPT2Config(**GPT2, tie_word_embeddings=False)), False),
        (XLMRobertaForMaskedLM(XLMRobertaConfig(**ROBERTA)), True),
        (XLMRobertaForSequenceClassification(XLMRobertaConfig(**ROBERTA)), None),
    ],
)
def test_ties_are_of_classes_that_write_words(model: PreTrainedModel, expected: bool | None, tmp_path: Path) -> None:
    """The config of a classifier says of ties what its class had by default."""
    checkpoints.save(model.eval(), tmp_path / "model")
    found = facts_of(checkpoints.read(tmp_path / "model"), None, None)
    assert found.ties is expected
    assert found.architecture == type(model).__name__
