"""The handwritten digits that come with scikit-learn: 1,797 images of 8 x 8 pixels, no download."""

from functools import cache

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset

from fusionlab.data.loading import refuse_large_batches, shuffled
from fusionlab.errors import InputError

TRAIN_SIZE = 1400
# Height and width that images may be scaled to, in pixels: 450 MiB of them.
LARGEST = 256


@cache
def _all_digits() -> tuple[Tensor, Tensor]:
    """All images, pixels from -1 to 1, shape (1797, 1, 8, 8), and their labels: unpacked once in a process."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - takes a second, of no other data

    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    return images, torch.tensor(bunch.target, dtype=torch.long)


class DigitImages(Dataset[dict[str, Tensor]]):
    """Images of shape (1, height, width), values from -1 to 1, and their labels."""

    def __init__(self, pixel_values: Tensor, labels: Tensor) -> None:
        self.pixel_values = pixel_values
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.pixel_values[index], "labels": self.labels[index]}


class Digits(LightningDataModule):
    """scikit-learn's digits with a fixed split: 1,400 to train, of which the last may be held out, and 397 to test.

    Batches are ``{"pixel_values": (batch, 1, image_size, image_size), "labels": (batch,)}`` with pixels from -1 to 1.
    Labels are the digits themselves, also when only some are kept.
    """

    name = "digits"
    task = "classification"

    def __init__(
        self, batch_size: int = 64, val_size: int = 100, classes: list[int] | None = None, image_size: int = 8
    ) -> None:
        """Choose the split.

        Args:
            batch_size: images in a batch, at least 1.
            val_size: training images held out for validation, from the end of the 1,400; 0 for none.
            classes: the digits to keep, each from 0 to 9; all of them when not given.
            image_size: height and width that images are scaled to (bilinear), from 1 to 256 pixels; for models that
                begin by shrinking what they see.

        Raises:
            InputError: a value out of range.
        """
        super().__init__()
        self.save_hyperparameters(logger=False)
        if batch_size < 1:
            raise InputError(f"data.batch_size is {batch_size}, but at least 1 was expected")
        refuse_large_batches(batch_size=batch_size)
        if not 0 <= val_size < TRAIN_SIZE:
            raise InputError(f"data.val_size is {val_size}, but a value from 0 to {TRAIN_SIZE - 1} was expected")
        if classes is not None and (not classes or not set(classes) <= set(range(10))):
            raise InputError(f"data.classes is {classes}, but digits from 0 to 9 were expected")
        if not 1 <= image_size <= LARGEST:
            raise InputError(f"data.image_size is {image_size}, but a value from 1 to {LARGEST} was expected")
        self.batch_size = batch_size
        self.val_size = val_size
        self.classes = None if classes is None else sorted(set(classes))
        self.num_classes = 10
        self.class_names = [str(digit) for digit in range(10)]

        images, labels = _all_digits()
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        if image_size != images.shape[-1]:
            images = interpolate(images, size=(image_size, image_size), mode="bilinear")
        held_out = TRAIN_SIZE - val_size
        self.train_set = self._keep(images[order[:held_out]], labels[order[:held_out]])
        self.val_set = self._keep(images[order[held_out:TRAIN_SIZE]], labels[order[held_out:TRAIN_SIZE]])
        self.test_set = self._keep(images[order[TRAIN_SIZE:]], labels[order[TRAIN_SIZE:]])

    def _keep(self, images: Tensor, labels: Tensor) -> DigitImages:
        if self.classes is None:
            return DigitImages(images, labels)
        kept = torch.isin(labels, torch.tensor(self.classes))
        return DigitImages(images[kept], labels[kept])

    def label_counts(self) -> Tensor:
        """The number of training images of each digit, shape ``(10,)``."""
        return torch.bincount(self.train_set.labels, minlength=self.num_classes)

    def train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Training batches, in an order that follows the seed."""
        return DataLoader(self.train_set, self.batch_size, **shuffled(self.train_set, self.batch_size))

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]] | list[DataLoader[dict[str, Tensor]]]:
        """Validation batches; none when `val_size` is 0."""
        return DataLoader(self.val_set, batch_size=self.batch_size) if len(self.val_set) else []

    def test_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Test batches."""
        return DataLoader(self.test_set, batch_size=self.batch_size)

    def predict_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """The test batches, to be predicted."""
        return self.test_dataloader()
