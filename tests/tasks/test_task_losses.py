"""Unknown labels are in no loss; class weights are what the formula says."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.nn import functional

from fusionlab.errors import InputError
from fusionlab.evaluation.losses import class_loss, multilabel_loss
from fusionlab.forward import IGNORED
from fusionlab.tasks import (
    CausalLanguageModelling,
    MaskedLanguageModelling,
    SequenceClassification,
    TokenClassification,
)
from fusionlab.tasks.class_weights import balanced_weights
from tests.tasks.sample import TAGS, bert

GENERATOR = torch.Generator().manual_seed(0)


def test_unknown_labels_have_no_gradient_and_the_rest_is_as_without_them() -> None:
    """The loss equals that of the known entries alone, even where an unknown one's logit is infinite."""
    task = SequenceClassification(bert(), num_classes=3, task="multilabel")
    labels = torch.tensor([[1, 0, IGNORED], [IGNORED, 1, 0], [IGNORED] * 3])
    output = torch.randn(3, 3, generator=GENERATOR).requires_grad_()
    loss = task.loss(output, labels)
    known = labels != IGNORED
    expected = functional.binary_cross_entropy_with_logits(output[known], labels[known].float())
    assert torch.allclose(loss, expected)
    (gradient,) = torch.autograd.grad(loss, output)
    assert (gradient[~known] == 0).all()
    assert (gradient[known] != 0).all()
    wild = torch.where(known, output, torch.inf)
    assert torch.allclose(multilabel_loss(wild, labels)[0] / known.sum(), expected)


@pytest.mark.parametrize("shape", [(4,), (4, 5)])
def test_unknown_classes_are_left_out(shape: tuple[int, ...]) -> None:
    """One label a text, or one a word; a batch without any known label has a loss of 0 that can be backpropagated."""
    task = SequenceClassification(bert(), num_classes=7) if len(shape) == 1 else TokenClassification(bert(), TAGS)
    output = torch.randn(*shape, 7, generator=GENERATOR, requires_grad=True)
    labels = torch.randint(7, shape, generator=GENERATOR)
    labels[0] = IGNORED
    expected = functional.cross_entropy(output.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)
    assert torch.allclose(task.loss(output, labels), expected)
    nothing = task.loss(output, torch.full(shape, IGNORED))
    nothing.backward()
    assert nothing == 0
    assert output.grad is not None
    assert (output.grad == 0).all()


def test_weights_of_rare_classes() -> None:
    """``inverse`` is scikit-learn's; a class that never occurs weighs 1 and changes no other weight."""
    labels = [0] * 8 + [1] * 1 + [2] * 3
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert balanced_weights(torch.tensor([8, 1, 3, 0]), "inverse").tolist() == pytest.approx([*expected, 1.0])
    roots = balanced_weights(torch.tensor([16, 4]), "sqrt")
    assert roots.tolist() == pytest.approx([3 / 4, 3 / 2])


def test_weights_of_several_labels_are_those_of_the_reference_code() -> None:
    """``(n0 + n1) / 2n`` with ``n`` the root of how often the label is absent or present, times each entry."""
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, IGNORED], [0.0, 1.0]])
    output = torch.randn(4, 2, generator=GENERATOR)
    weights = balanced_weights(torch.tensor([[3, 1], [2, 1]]), "sqrt")
    total, known = multilabel_loss(output, labels, weights)
    expected = 0.0
    for row in range(4):
        for column, counts in enumerate(((3, 1), (2, 1))):
            value = labels[row, column]
            if value == IGNORED:
                continue
            sizes = [count**0.5 for count in counts]
            probability = output[row, column].sigmoid()
            entry = -(value * probability.log() + (1 - value) * (1 - probability).log())
            expected += float(entry) * sum(sizes) / 2 / sizes[int(value)]
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert known == 7


def by_hand(output: Tensor, labels: Tensor, weights: list[float], smoothing: float = 0.0) -> float:
    """The weighted mean over labels of -log p(label), some of the target spread evenly over all classes.

    A class's share of the target weighs what the class does; the mean is over the weights of the labels themselves.
    """
    total = norm = 0.0
    for row, label in zip(output.flatten(0, -2).double(), labels.flatten().tolist(), strict=True):
        if label == IGNORED:
            continue
        surprise = -(row - row.exp().sum().log())
        spread = sum(weight * float(value) for weight, value in zip(weights, surprise, strict=True)) / len(weights)
        total += (1 - smoothing) * weights[label] * float(surprise[label]) + smoothing * spread
        norm += weights[label]
    return total / norm


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.0]])
def test_a_weighted_smoothed_loss_by_hand(weights: list[float] | None, smoothing: float) -> None:
    """One label a text or one a word: weights given as a list, and label smoothing."""
    options: dict[str, Any] = {"class_weights": weights, "label_smoothing": smoothing}
    output, labels = torch.randn(6, 3, generator=GENERATOR), torch.tensor([0, 1, 2, IGNORED, 1, 1])
    expected = by_hand(output, labels, weights or [1.0] * 3, smoothing)
    assert float(SequenceClassification(bert(), num_classes=3, **options).loss(output, labels)) == pytest.approx(
        expected
    )
    words = TokenClassification(bert(), ["O", "B-X", "I-X"], **options)
    found = words.loss(output.view(2, 3, 3), labels.view(2, 3))
    assert float(found) == pytest.approx(expected)


def test_a_list_of_weights_for_several_labels_is_for_presence() -> None:
    """Entries of present labels are multiplied, those of absent ones are not; the mean is over all known entries."""
    task = SequenceClassification(bert(), num_classes=2, task="multilabel", class_weights=[3.0, 0.5])
    output, labels = torch.tensor([[0.4, -1.0], [2.0, 0.3]]), torch.tensor([[1, 0], [IGNORED, 1]])
    probabilities = output.sigmoid()
    present = -3 * probabilities[0, 0].log() - 0.5 * probabilities[1, 1].log()
    expected = (present - (1 - probabilities[0, 1]).log()) / 3
    assert float(task.loss(output, labels)) == pytest.approx(float(expected))


def test_weights_may_be_whole_numbers_and_zero() -> None:
    """A batch whose classes all weigh 0 has a loss of 0, not 0 / 0."""
    task = TokenClassification(bert(), ["O", "B-X"], class_weights=[0, 2])
    output = torch.randn(1, 3, 2, generator=GENERATOR, requires_grad=True)
    loss = task.loss(output, torch.zeros(1, 3, dtype=torch.long))
    loss.backward()
    assert loss == 0
    assert output.grad is not None
    assert (output.grad == 0).all()
    assert task.loss(output, torch.tensor([[0, 1, 0]])) > 0


def test_a_regression_pairs_outputs_with_labels() -> None:
    """Labels in a column are no other labels; -100 is a number."""
    task = SequenceClassification(bert(), task="regression")
    output, labels = torch.tensor([[1.0], [2.0], [-99.0]]), torch.tensor([1.5, 0.0, -100.0])
    assert float(task.loss(output, labels)) == pytest.approx((0.25 + 4 + 1) / 3)
    assert float(task.loss(output, labels[:, None])) == pytest.approx((0.25 + 4 + 1) / 3)


@pytest.mark.parametrize("task_class", [MaskedLanguageModelling, CausalLanguageModelling])
def test_the_loss_of_each_text(task_class: Any) -> None:
    """Each text's own mean cross-entropy, of the next token where the model is causal, and its exponential."""
    causal = task_class is CausalLanguageModelling
    model = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
    task = task_class(model | {"vocab_size": 200} if causal else bert()).eval()
    tokens = torch.randint(5, 200, (2, 6), generator=GENERATOR)
    labels = tokens.clone()
    labels[0, 4:] = labels[1, 1] = IGNORED
    with torch.no_grad():
        found = task.predict_step({"input_ids": tokens, "labels": labels}, 0)
        output = task.model(tokens).logits.log_softmax(-1)
    for text in range(2):
        places = [place for place in range(causal, 6) if labels[text, place] != IGNORED]
        entries = [-float(output[text, place - causal, labels[text, place]]) for place in places]
        loss = sum(entries) / len(entries)
        assert found[text].tolist() == pytest.approx([loss, math.exp(loss), len(entries)], rel=1e-4)


def test_labels_that_do_not_fit_several_logits() -> None:
    """Another number of labels, or other values."""
    with pytest.raises(InputError, match="2 labels for each sample, but the model has 3"):
        multilabel_loss(torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(InputError, match="neither 0, 1 nor -100"):
        multilabel_loss(torch.zeros(1, 2), torch.tensor([[0, 2]]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_that_a_precision_brought_to_another_dtype(dtype: torch.dtype) -> None:
    """As ``64-true`` and ``bf16-true`` do; the loss is that of the same weights."""
    output, labels = torch.randn(5, 3, generator=GENERATOR).to(dtype), torch.tensor([0, 1, 2, 2, 1])
    weights = torch.tensor([1.0, 2.0, 0.5])
    torch.testing.assert_close(class_loss(output, labels, weights.to(dtype)), class_loss(output, labels, weights))
    several, pairs = functional.one_hot(labels), torch.stack([weights, weights + 1], -1)
    found, expected = (multilabel_loss(output, several, given)[0] for given in (pairs.to(dtype), pairs))
    assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_a_text_without_a_labelled_token_has_no_number() -> None:
    """Its cells are empty, and not ``nan``; those of others are what they were."""
    task = MaskedLanguageModelling(bert()).eval()
    tokens = torch.randint(5, 200, (2, 6), generator=GENERATOR)
    labels = torch.full((2, 6), IGNORED)
    labels[1, 2] = 7
    header, first, second = task.prediction_rows([task.predict_step({"input_ids": tokens, "labels": labels}, 0)])
    assert header == ["sample", "loss", "perplexity"]
    assert first == [0, "", ""]
    assert second[0] == 1
    assert float(second[2]) == pytest.approx(math.exp(float(second[1])), rel=1e-4)
