"""Models that find answers in texts are matched by what they answer, and by labels."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForQuestionAnswering

import fusionlab
from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.fusion.heads.labels import with_union_heads
from fusionlab.learning.distillation import distillation_loss, output_of, outputs_alone, teacher_targets
from fusionlab.learning.labels_loss import labels_loss

TOKENS = 12


@pytest.fixture(scope="module")
def models() -> list[nn.Module]:
    """Two models of other seeds."""
    found: list[nn.Module] = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        found.append(BertForQuestionAnswering(BertConfig(vocab_size=40, initializer_range=0.3, **sizes)).eval())
    return found


def batch() -> dict[str, Tensor]:
    """Four questions, of which one has an unknown answer, and padding behind another."""
    tokens = torch.randint(1, 40, (4, TOKENS), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    mask[1, 8:] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": torch.tensor([[1, 2], [3, 3], [-100, -100], [0, 0]])}


@pytest.mark.parametrize("target", ["outputs", "labels"])
def test_learned(models: list[nn.Module], target: str) -> None:
    """Twins compute what their models do, and half way what was learned fits better than where it began."""
    data = [batch()]
    options: dict[str, Any] = {"steps": 60, "target": target, "synthetic": 0}
    twins = fusionlab.align(models, preset="learned", data=data, **options)
    inputs = {name: value for name, value in data[0].items() if name != "labels"}
    taught = teacher_targets(models, inputs)

    def loss(pair: list[nn.Module]) -> Tensor:
        half = fusionlab.merge(pair).eval()
        return (
            labels_loss(half, data[0])
            if target == "labels"
            else distillation_loss(logits(half, inputs), taught, inputs)
        )

    with torch.no_grad():
        for twin, model in zip(twins, models, strict=True):
            assert torch.allclose(logits(twin, inputs), logits(model, inputs), atol=1e-3)
        assert loss(twins) < loss(fusionlab.align(models, preset="weights"))


def test_the_loss_on_labels(models: list[nn.Module]) -> None:
    """By hand over the known ends; padding has no share."""
    given = batch()
    with torch.no_grad():
        output = logits(models[0], given)
        wanted = [cross_entropy(output[row, end], given["labels"][row, end]) for row in (0, 1, 3) for end in (0, 1)]
        assert torch.allclose(labels_loss(models[0], given), torch.stack(wanted).mean())
    assert (output[1, :, 8:] < -1000).all()


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_padding_is_no_answer_to_learn(models: list[nn.Module], temperature: float) -> None:
    """Of a padded batch a student has the loss of its rows alone; padding has no share of the targets."""
    (teacher, student), padded = models, {name: value[:2] for name, value in batch().items() if name != "labels"}
    alone = [{"input_ids": padded["input_ids"][row : row + 1, :length]} for row, length in enumerate((TOKENS, 8))]
    targets = teacher_targets([teacher], padded)
    assert targets.values[1, :, 8:].abs().max() == 0
    each = [
        distillation_loss(output_of(student, one), teacher_targets([teacher], one), one, temperature) for one in alone
    ]
    together = distillation_loss(output_of(student, padded), targets, padded, temperature)
    assert torch.allclose(together, torch.stack(each).mean(), rtol=1e-4)


def test_an_example_counts_as_its_tokens(models: list[nn.Module]) -> None:
    """All of them are looked at for an answer; labels that are tokens cannot be joined by name."""
    inputs = {name: value for name, value in batch().items() if name != "labels"}
    assert outputs_alone(models[0], inputs) == (TOKENS, True)
    with pytest.raises(InputError, match="a BertForQuestionAnswering has no classifier with one row for each label"):
        with_union_heads(models)
