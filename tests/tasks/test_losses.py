"""Unknown labels are in no loss; class weights are what the formula says."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from fusionlab.errors import InputError
from fusionlab.evaluation.losses import IGNORED, multilabel_loss
from fusionlab.tasks import SequenceClassification, TokenClassification
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


def test_labels_that_do_not_fit_several_logits() -> None:
    """Another number of labels, or other values."""
    with pytest.raises(InputError, match="2 labels for each sample, but the model has 3"):
        multilabel_loss(torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(InputError, match="neither 0, 1 nor -100"):
        multilabel_loss(torch.zeros(1, 2), torch.tensor([[0, 2]]))
