"""scikit-learn's digits: fixed splits, pixels from -1 to 1, batches in an order that follows the seed."""

import pytest
import torch
from lightning import seed_everything

from fusionlab.data import Digits
from fusionlab.errors import InputError


def test_splits_are_fixed_and_disjoint() -> None:
    """1,300 + 100 + 397 images; holding out does not change the test set."""
    held, full = Digits(), Digits(val_size=0)
    assert [len(part) for part in (held.train_set, held.val_set, held.test_set)] == [1300, 100, 397]
    assert [len(part) for part in (full.train_set, full.test_set)] == [1400, 397]
    assert torch.equal(full.train_set.pixel_values[1300:], held.val_set.pixel_values)
    assert torch.equal(full.test_set.labels, held.test_set.labels)
    assert full.val_dataloader() == []


def test_batches_are_what_the_models_take() -> None:
    """Shape (batch, 1, 8, 8), values in [-1, 1], integer labels."""
    batch = next(iter(Digits(batch_size=5).train_dataloader()))
    assert batch["pixel_values"].shape == (5, 1, 8, 8)
    assert batch["pixel_values"].min() >= -1
    assert batch["pixel_values"].max() <= 1
    assert batch["labels"].dtype == torch.long


def test_classes_keep_their_labels() -> None:
    """A subset of the digits keeps its own numbers under a ten-way head."""
    data = Digits(classes=[5, 7])
    assert set(data.train_set.labels.tolist()) == {5, 7}
    assert data.num_classes == 10


def test_order_follows_the_seed_alone() -> None:
    """The order is the same after any number of other random draws, and another for another seed."""

    def order(seed: int, draws: int) -> torch.Tensor:
        seed_everything(seed)
        torch.randn(draws)
        return next(iter(Digits().train_dataloader()))["labels"]

    assert torch.equal(order(0, 1), order(0, 99))
    assert not torch.equal(order(0, 1), order(1, 1))


@pytest.mark.parametrize("wrong", [{"val_size": 1400}, {"batch_size": 0}, {"classes": [10]}, {"classes": []}])
def test_values_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    """One sentence that names the argument."""
    with pytest.raises(InputError, match=next(iter(wrong))):
        Digits(**wrong)  # type: ignore[arg-type]


def test_batches_that_no_sampler_counts_to_are_refused() -> None:
    with pytest.raises(InputError, match=r"data\.batch_size is 4611686018427387904; expected at most 2,147,483,647"):
        Digits(batch_size=2**62)


def test_images_are_scaled_to_a_size() -> None:
    """Bilinear, so that the mean of every two by two pixels that one became is near it; other sizes are refused."""
    small, large = Digits(val_size=0), Digits(val_size=0, image_size=16)
    assert large.train_set.pixel_values.shape == (1400, 1, 16, 16)
    pooled = torch.nn.functional.avg_pool2d(large.test_set.pixel_values, 2)
    assert (pooled - small.test_set.pixel_values).abs().mean() < 0.15
    assert torch.equal(large.test_set.labels, small.test_set.labels)
    for size in (0, 257):
        with pytest.raises(InputError, match=f"image_size is {size}, but a value from 1 to 256 was expected"):
            Digits(image_size=size)
