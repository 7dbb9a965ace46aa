"""Rough costs of what is advised: what they follow from."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from fusionlab.advice.costs import cost_of
from fusionlab.advice.tensors import Weights
from fusionlab.streaming.stored import TensorSpec


def seconds(**config: Any) -> float:
    """Those of learning between two models, less those of matching by weights that comes before."""
    tensors = {"weight": TensorSpec(torch.float32, (1000, 1000))}
    models = [Weights(name, None, config, tensors, nullcontext) for name in "ab"]  # type: ignore[arg-type]
    learned, weights = (cost_of(models, match).seconds for match in ("learned", "weights"))
    return learned - weights


def test_learning_sees_fewer_texts_where_each_token_has_an_output() -> None:
    """128 tokens are guessed: 16 texts a step of a language model, 128 of a classifier; an image has one output."""
    language, classifier = (
        seconds(architectures=["LlamaForCausalLM"]),
        seconds(architectures=["BertForSequenceClassification"]),
    )
    assert classifier == pytest.approx(8 * language)
    assert seconds() == pytest.approx(classifier)
    image = seconds(architectures=["ViTForImageClassification"], image_size=32, patch_size=8)
    assert image == pytest.approx(classifier * 17 / 128)
