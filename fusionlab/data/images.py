"""Image data sets of any origin: the Hugging Face hub, a folder of images by class, Parquet and other files."""

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fusionlab.data.image_tables import LabelledImages, Table, load_splits
from fusionlab.data.loading import refuse_large_batches, shuffled
from fusionlab.data.preprocessing import Preprocessing, preprocessing_of
from fusionlab.data.splits import Splits, refuse_wrong_splits
from fusionlab.errors import InputError
from fusionlab.paths import expanded

Loader = DataLoader[dict[str, Tensor]]


class Images(LightningDataModule):
    """Images with integer labels, resized, augmented and normalised.

    Batches are ``{"pixel_values": (batch, channels, image_size, image_size), "labels": (batch,)}``.
    """

    task = "classification"

    def __init__(
        self,
        path: str,
        *,
        config_name: str | None = None,
        image_column: str = "image",
        label_column: str | None = "label",
        train_split: str | None = "train",
        val_split: str | None = None,
        test_split: str | None = "test",
        split_column: str | None = None,
        val_size: int | float = 0,
        test_size: int | float = 0,
        class_names: list[str] | None = None,
        label_values: list[bool | int | str] | None = None,
        preprocessor: str | None = None,
        image_size: int | None = None,
        channels: int = 3,
        mean: list[float] | None = None,
        std: list[float] | None = None,
        augment: bool = True,
        limit: int | None = None,
        batch_size: int = 128,
        num_workers: int = 0,
    ) -> None:
        """Say where the images are and how they are prepared; nothing is read yet.

        Args:
            path: a hub id, a folder (one sub-folder of images for each class, or data files), or one data file.
            config_name: configuration of a hub data set that has several.
            image_column: column with the images: encoded bytes, file paths or the library's own images.
            label_column: column with the class of each image, an integer from 0 to the number of classes less 1; null
                for images without labels, which can be looked at but not measured on.
            train_split: name of the training split; for data without `split_column` also a slice (``train[:80%]``);
                none if null.
            val_split: name of the validation split; none when not given and `val_size` is 0.
            test_split: name of the test split; held out if null and `test_size` is not 0.
            split_column: column that names the split of each row, for files that hold several splits.
            val_size: without `val_split`: images of the training split, or below 1 the share of them, held out at
                random, always the same ones.
            test_size: the same for testing, without `test_split`; held out first.
            class_names: names of the classes, in order; where not given, those of the data set, else their numbers.
            label_values: what the column holds for each of the `class_names`, in their order, where it does not hold
                their numbers: ``[cat, dog]``, or ``[1, 2]`` for classes that are counted from 1.
            preprocessor: checkpoint folder whose image processor gives size, how images are brought to it, mean and
                deviation (whose timm config gives size, mean and deviation), unless they are given here.
            image_size: height and width in pixels; the images' own when not given (then all must be of one size).
            channels: 1 (grey) or 3 (colour).
            mean: mean of each channel, of pixels from 0 to 1; 0.5 when not given.
            std: standard deviation of each channel, of pixels from 0 to 1; 0.5 when not given.
            augment: mirror half of the training images; shift them by up to an eighth, unless neither `image_size` nor
                the preprocessor gives a size.
            limit: at most this many images of each split, drawn at random but always the same; for a quick look.
            batch_size: images in a batch, at least 1.
            num_workers: processes that prepare batches; 0 for the main one.

        Raises:
            InputError: a value out of range, or a preprocessor that cannot be read.
        """
        super().__init__()
        self.save_hyperparameters(logger=False)
        for argument, value, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 0),
            ("image_size", 1 if image_size is None else image_size, 1),
        ):
            if value < least:
                raise InputError(f"data.{argument} is {value}, but at least {least} was expected")
        self.division = Splits(
            {"train": train_split, "val": val_split, "test": test_split}, val_size, test_size, limit=limit
        )
        refuse_wrong_splits(self.division)
        given = Preprocessing(image_size=image_size, channels=channels, mean=mean, std=std)
        self.preprocessing = given.completed(preprocessing_of(preprocessor) if preprocessor else None)
        self.name = expanded(path).stem if expanded(path).exists() else path.rsplit("/", maxsplit=1)[-1]
        self.table = Table(path, config_name, image_column, label_column, split_column, class_names, label_values)
        self.augment = augment
        refuse_large_batches(batch_size=batch_size)
        self.batch_size = batch_size
        self.num_workers = num_workers
        self._sets: dict[str, LabelledImages] = {}

    def prepare_data(self) -> None:
        """Download, or convert to the library's cache, on one process only."""
        self._load()

    def setup(self, stage: str) -> None:
        """Load the splits and check every label."""
        self._load()

    def _load(self) -> None:
        if not self._sets:
            self._sets = load_splits(self.table, self.division)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their labels."""
        self._load()
        return next(iter(self._sets.values())).class_names

    def label_counts(self) -> Tensor:
        """The number of training images of each class, shape ``(classes,)``."""
        self._load()
        labels = self._sets["train"].labels
        if labels is None:
            raise InputError(f"{self.table.path} was read without labels; expected a column of them, label_column")
        return torch.bincount(torch.from_numpy(labels), minlength=self.num_classes)

    def samples(self, split: str, training: bool = False) -> Dataset[dict[str, Tensor]]:
        """The images of a split as tensors, with their labels.

        Args:
            split: ``train``, ``val`` or ``test``.
            training: whether they are augmented, where that is asked for.
        """
        return self._sets[split].prepared(self.preprocessing, self.augment and training)

    def _loader(self, split: str, training: bool = False) -> Loader:
        images = self.samples(split, training)
        return DataLoader(
            images,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            **(shuffled(images, self.batch_size, self.num_workers) if training else {}),
        )

    def train_dataloader(self) -> Loader | list[Loader]:
        """Training batches, augmented, in an order that follows the seed; none without a training split."""
        return self._loader("train", training=True) if "train" in self._sets else []

    def val_dataloader(self) -> Loader | list[Loader]:
        """Validation batches; none without a validation split."""
        return self._loader("val") if "val" in self._sets else []

    def test_dataloader(self) -> Loader | list[Loader]:
        """Test batches; none without a test split."""
        return self._loader("test") if "test" in self._sets else []

    def predict_dataloader(self) -> Loader | list[Loader]:
        """The test batches, to be predicted."""
        return self.test_dataloader()
