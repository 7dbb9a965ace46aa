"""Several sets as one: what a multi-task model is trained on."""

from typing import Any

from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader
from transformers import PreTrainedTokenizerBase

from fusionlab.data.contract import described
from fusionlab.data.loading import refuse_large_batches, shuffled
from fusionlab.data.tokenizers import identity
from fusionlab.decoder_inputs import Start
from fusionlab.errors import InputError
from fusionlab.evaluation.scores import Task
from fusionlab.evaluation.similarity_scores import Pooling

Loader = DataLoader[dict[str, Tensor]]


class Union(LightningDataModule):
    """The rows of several data modules of one task, one after another; shuffled together for training.

    Batches are put together as the first part does it.
    """

    def __init__(self, parts: list[LightningDataModule], batch_size: int | None = None) -> None:
        """Say which sets.

        Args:
            parts: data modules with the same task, labels and tokenizer.
            batch_size: samples in a training batch; that of the first part if null.

        Raises:
            InputError: no parts, a part that is no data module of the contract, or a batch size below 1.
        """
        super().__init__()
        self.save_hyperparameters(logger=False)
        if not parts:
            raise InputError("data.parts is empty; expected at least one data module")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"data.batch_size is {batch_size}, but at least 1 was expected")
        refuse_large_batches(batch_size=batch_size)
        self.parts, self.batch_size = parts, batch_size
        self.name = "+".join(described(part).name for part in parts)

    @property
    def task(self) -> Task | None:
        """The task that all parts have."""
        return self._common("task")

    @property
    def class_names(self) -> list[str] | None:
        """Names of the labels, the same in all parts."""
        return self._common("class_names")

    @property
    def metric(self) -> Any:
        """The metric to look at first, where all parts agree on it."""
        return self._common("metric")

    @property
    def num_classes(self) -> int | None:
        """The number of classes, the same in all parts."""
        return self._common("num_classes")

    @property
    def pooling(self) -> Pooling | None:
        """The way in which a text gets one embedding, the same in all parts."""
        return self._common("pooling")

    @property
    def decoder_start(self) -> Start | None:
        """The token that decoders begin with, the same in all parts."""
        return self._common("decoder_start")

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer, the same in all parts; None where the data are no texts."""
        found = [described(part).tokenizer for part in self.parts]
        if len({None if tokenizer is None else identity(tokenizer) for tokenizer in found}) > 1:
            raise InputError("data.parts have different tokenizers; expected the same in all")
        return found[0]

    @property
    def vocabulary_size(self) -> int | None:
        """Number of tokens that there are; None where the data are no texts."""
        return self._common("vocabulary_size")

    def texts(self, split: str) -> list[str]:
        """The texts of a split of all parts that have texts."""
        return [text for part in self.parts for text in described(part).texts(split)]

    def label_counts(self) -> Tensor | None:
        """The number of training samples with each label, in the shape that the parts give; None if one has none."""
        counts = [described(part).label_counts() for part in self.parts]
        known = [count for count in counts if count is not None]
        return sum(known[1:], known[0]) if len(known) == len(counts) else None

    def prepare_data(self) -> None:
        """Download and encode, on one process only."""
        for part in self.parts:
            part.prepare_data()

    def setup(self, stage: str) -> None:
        """Read all parts.

        Raises:
            InputError: parts of different tasks, labels, metrics or tokenizers.
        """
        for part in self.parts:
            part.setup(stage)
        for attribute in ("task", "class_names", "metric"):
            self._common(attribute)
        _ = self.tokenizer  # refuses different ones

    def train_dataloader(self) -> Loader:
        """Training batches with rows of all parts, in an order that follows the seed."""
        return self._loader("train_dataloader", training=True)

    def val_dataloader(self) -> Loader | list[Loader]:
        """Validation batches, part by part."""
        return self._loader("val_dataloader")

    def test_dataloader(self) -> Loader | list[Loader]:
        """Test batches, part by part."""
        return self._loader("test_dataloader")

    def predict_dataloader(self) -> Loader | list[Loader]:
        """The test batches, to be predicted."""
        return self.test_dataloader()

    def _loader(self, name: str, training: bool = False) -> Any:
        found = [loader for part in self.parts if isinstance(loader := getattr(part, name)(), DataLoader)]
        if not found:
            return []
        first = found[0]
        size = self.batch_size if training and self.batch_size is not None else first.batch_size
        samples: Any = ConcatDataset([loader.dataset for loader in found])
        return DataLoader(
            samples,
            batch_size=size,
            collate_fn=first.collate_fn,
            num_workers=first.num_workers,
            persistent_workers=first.num_workers > 0,
            **(shuffled(samples, size or 1, first.num_workers) if training else {}),
        )

    def _common(self, attribute: str) -> Any:
        values = [getattr(described(part), attribute) for part in self.parts]
        if odd := [value for value in values if value != values[0]]:
            raise InputError(f"data.parts have {attribute} {values[0]!r} and {odd[0]!r}; expected the same in all")
        return values[0]
