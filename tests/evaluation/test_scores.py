"""Loss and accuracy over batches."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.errors import InputError
from fusionlab.evaluation.scores import Scores


class Echo(nn.Module):
    """Its input is its logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def batches(shape: tuple[int, ...], sizes: tuple[int, ...], ignored: bool) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for size in sizes:
        labels = torch.randint(4, (size, *shape), generator=generator)
        if ignored:
            labels[torch.rand(labels.shape, generator=generator) < 0.4] = -100
        found.append({"x": 2 * torch.randn(size, *shape, 4, generator=generator), "labels": labels})
    return found


@pytest.mark.parametrize("shape", [(), (6,)])
@pytest.mark.parametrize("ignored", [False, True])
def test_equal_to_one_pass_over_everything(shape: tuple[int, ...], ignored: bool) -> None:
    """Uneven batches, tokens or sequences, labels of -100: torch's cross entropy over all samples at once."""
    data = batches(shape, (7, 2, 5), ignored)
    scores = Scores()
    for batch in data:
        scores.update(Echo(), batch)
    logits = torch.cat([batch["x"].reshape(-1, 4) for batch in data])
    labels = torch.cat([batch["labels"].reshape(-1) for batch in data])
    known = labels != -100
    assert ignored == (not known.all())
    found = scores.compute()
    assert found["loss"] == pytest.approx(float(functional.cross_entropy(logits, labels, ignore_index=-100)), rel=1e-6)
    assert found["accuracy"] == pytest.approx(float((logits.argmax(-1) == labels)[known].float().mean()), rel=1e-6)
    per_batch = [float(functional.cross_entropy(b["x"].reshape(-1, 4), b["labels"].reshape(-1))) for b in data]
    assert found["loss"] != pytest.approx(sum(per_batch) / 3, rel=1e-3), "the mean of batch means must differ here"


def test_a_batch_of_ignored_labels_counts_for_nothing() -> None:
    """Its loss would be 0/0; the other batches' scores stay."""
    (batch,) = batches((), (5,), ignored=False)
    empty = batch | {"labels": torch.full((5,), -100)}
    alone, both = Scores(), Scores()
    alone.update(Echo(), batch)
    for given in (empty, batch, empty):
        both.update(Echo(), given)
    assert both.compute() == pytest.approx(alone.compute())


def test_a_loss_that_is_not_a_number_shows() -> None:
    """One batch with NaN logits makes the whole mean NaN, as it should."""
    first, second = batches((), (5, 6), ignored=False)
    scores = Scores()
    scores.update(Echo(), first)
    scores.update(Echo(), second | {"x": torch.full_like(second["x"], torch.nan)})
    assert math.isnan(scores.compute()["loss"])


def test_reset_forgets() -> None:
    """Afterwards only new batches count."""
    first, second = batches((), (5, 6), ignored=False)
    scores, fresh = Scores(), Scores()
    scores.update(Echo(), first)
    scores.reset()
    scores.update(Echo(), second)
    fresh.update(Echo(), second)
    assert scores.compute() == fresh.compute()


def test_half_precision_logits_are_scored_in_float32() -> None:
    """The loss of bfloat16 logits is not rounded to bfloat16 again."""
    (batch,) = batches((), (64,), ignored=False)
    half = batch["x"].bfloat16()
    scores = Scores()
    scores.update(Echo(), {"x": half, "labels": batch["labels"]})
    wanted = float(functional.cross_entropy(half.double(), batch["labels"]))
    assert scores.compute()["loss"] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("label", [4, -1, 17])
def test_labels_out_of_range(label: int) -> None:
    """One sentence names the label and the range, on any device."""
    (batch,) = batches((), (5,), ignored=False)
    batch["labels"][3] = label
    with pytest.raises(InputError, match=f"the label {label} for a model of 4 classes; expected labels from 0 to 3"):
        Scores().update(Echo(), batch)
