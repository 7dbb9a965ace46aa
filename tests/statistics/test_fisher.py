"""Diagonal Fisher information as it is gathered: by the Trainer, of tied parameters, in half precision."""

import torch
from lightning.pytorch import Trainer
from torch import nn

from fusionlab.statistics.gather import gather
from fusionlab.statistics.statistics import Fisher
from tests.statistics.fishers import EXAMPLES, assert_equal, gathered, gpt2, split, texts
from tests.symmetry.models import random_model


def test_gathered_by_the_trainer() -> None:
    """A pass of the Trainer gives the same, tied to the model, even where the Trainer works in bfloat16."""
    model, batch = random_model("bert-sequence").float(), texts()
    expected = gathered(model, [batch], labels="model", seed=2)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    for precision in ("32-true", "bf16-mixed"):
        found = gather(
            model,
            list(split(batch, [2, 3])),
            ["fisher"],
            trainer=lambda precision=precision: Trainer(precision=precision, **quiet),
            labels="model",
            seed=2,
        )["fisher"]
        assert isinstance(found, Fisher)
        found.check(model.state_dict())
        assert found.examples == EXAMPLES
        assert {"labels": "model", "seed": "2", "gradients": "batched"}.items() <= found.settings.items()
        assert_equal(found, dict(expected.diagonal), tolerance=1e-4, dtype=torch.float32)


def test_tied_parameters_have_one_fisher_under_both_names() -> None:
    """The gradients of both uses are summed before they are squared: not the sum of two Fishers."""
    model, batch = gpt2(), texts("next")
    diagonal = gathered(model, [batch], labels="empirical").diagonal
    assert torch.equal(diagonal["lm_head.weight"], diagonal["transformer.wte.weight"])
    untied = gpt2()
    untied.lm_head.weight = nn.Parameter(untied.lm_head.weight.detach().clone())
    untied.config.tie_word_embeddings = False
    apart = gathered(untied, [batch], labels="empirical").diagonal
    total = apart["lm_head.weight"] + apart["transformer.wte.weight"]
    assert not torch.allclose(diagonal["lm_head.weight"], total)


def test_half_precision_is_differentiated_in_float32() -> None:
    """A bfloat16 model has the Fisher information of the same numbers in float32."""
    half = random_model("bert-sequence").bfloat16()
    found, expected = (
        gathered(model, [texts()], labels="empirical")
        for model in (half, random_model("bert-sequence").bfloat16().float())
    )
    assert {tensor.dtype for tensor in found.diagonal.values()} == {torch.float32}
    assert all(torch.equal(found.diagonal[name], expected.diagonal[name]) for name in expected.diagonal)


def test_the_model_is_left_alone() -> None:
    """Parameters, gradients and what is frozen stay as they were; frozen parameters have Fisher information too."""
    model = random_model("bert-sequence")
    model.bert.embeddings.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = gathered(model, [texts()])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.bert.embeddings.word_embeddings.weight.requires_grad
    assert "bert.embeddings.word_embeddings.weight" in found.diagonal
