"""The base of all text data sets: splits, tokenizer, cached tokens, padding to the longest text of a batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import LengthGroupedSampler

from fusionlab.data.encoding import Encoder, encoded
from fusionlab.data.loading import MOST_SAMPLES, FollowsEpochs, refuse_large_batches, shuffled
from fusionlab.data.splits import Splits, divided, named_splits, refuse_wrong_splits
from fusionlab.data.tables import Source
from fusionlab.data.tokenizers import load_tokenizer
from fusionlab.errors import InputError
from fusionlab.evaluation.scores import Task

Loader = DataLoader[dict[str, Tensor]]


class TextData(LightningDataModule, ABC):
    """Texts as batches of tokens, padded to the longest of each batch.

    A subclass sets ``task`` and ``class_names``, and says which columns it needs and how rows are encoded.
    """

    task: Task
    words = False
    """True if the tokenizer is given words instead of texts."""
    encoded_together = 1000
    """Rows that are encoded together."""

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        config_name: str | None = None,
        train_split: str | None = "train",
        val_split: str | None = None,
        test_split: str | None = "test",
        split_column: str | None = None,
        val_size: int | float = 0,
        test_size: int | float = 0,
        test_on_all: bool = False,
        limit: int | None = None,
        max_length: int = 128,
        batch_size: int = 16,
        eval_batch_size: int = 32,
        group_by_length: bool = False,
        num_workers: int = 0,
    ) -> None:
        """Say where the texts are and how they are read; nothing is read yet.

        Args:
            path: a hub id, a folder of data files, or one file (Parquet, JSONL, CSV, Arrow, text).
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            config_name: configuration of a hub data set that has several.
            train_split: name of the training split; none if null.
            val_split: name of the validation split; held out from the training split if null and `val_size` is not 0.
            test_split: name of the test split; held out if null and `test_size` is not 0.
            split_column: column that names the split of each row, for files that hold several splits.
            val_size: rows, or below 1 the share of rows, that are held out at random, always the same ones.
            test_size: the same for testing.
            test_on_all: whether all rows of all splits named above are test rows, as for data out of domain.
            limit: at most this many rows of each split, drawn at random but always the same; for a quick look.
            max_length: most tokens of a sample, special ones included.
            batch_size: samples in a training batch, at least 1.
            eval_batch_size: samples in a batch for validating, testing and predicting, at least 1.
            group_by_length: whether training batches hold texts of about one length, which saves padding.
            num_workers: processes that prepare batches; 0 for the main one.

        Raises:
            InputError: a value out of range.
        """
        super().__init__()
        self.save_hyperparameters(logger=False)
        for argument, value, least in (
            ("batch_size", batch_size, 1),
            ("eval_batch_size", eval_batch_size, 1),
            ("num_workers", num_workers, 0),
            ("max_length", max_length, 4),
        ):
            if value < least:
                raise InputError(f"data.{argument} is {value}, but at least {least} was expected")
        if max_length > MOST_SAMPLES:
            raise InputError(f"data.max_length is {max_length}; expected at most {MOST_SAMPLES:,}")
        self.source = Source(path, config_name, split_column)
        names = {"train": train_split, "val": val_split, "test": test_split}
        self.splits = Splits(names, val_size, test_size, test_on_all, limit)
        refuse_wrong_splits(self.splits)
        self.name = path.rstrip("/").rsplit("/", maxsplit=1)[-1].split(".")[0]
        self.tokenizer_source = tokenizer
        self.max_length = max_length
        refuse_large_batches(batch_size=batch_size, eval_batch_size=eval_batch_size)
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.group_by_length = group_by_length
        self.num_workers = num_workers
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._rows: dict[str, Dataset] = {}
        self._encoded: dict[str, Dataset] = {}

    # --- what a subclass says --------------------------------------------------------------------------------------

    @abstractmethod
    def columns(self) -> list[str]:
        """Columns that the table must have."""

    @abstractmethod
    def encoder(self) -> Encoder:
        """The encoder that turns rows into tokens and labels."""

    def read(self) -> dict[str, Dataset]:
        """The splits that the data itself has, by ``train``, ``val`` and ``test``."""
        return named_splits(self.source, self.splits.names, self.columns(), self.splits.optional)

    @abstractmethod
    def texts(self, split: str) -> list[str]:
        """The texts of ``train``, ``val`` or ``test``; none where there is no such split."""

    def collator(self) -> Any:
        """The collator that turns samples into a batch."""
        return DataCollatorWithPadding(self.tokenizer)

    # --- what Lightning asks for -----------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.tokenizer_source, words=self.words)
        return self._tokenizer

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens that there are."""
        return len(self.tokenizer)

    @property
    def rows(self) -> dict[str, Dataset]:
        """The table of each split, before it is encoded."""
        if not self._rows:
            self._rows = divided(self.read(), self.splits, self.source.path)
        return self._rows

    def prepare_data(self) -> None:
        """Download and encode to the cache, on one process only."""
        self._load()

    def setup(self, stage: str) -> None:
        """Read the encoded splits."""
        self._load()

    def _load(self) -> None:
        if not self._encoded:
            encoder = self.encoder()
            self._encoded = {use: encoded(part, encoder, self.encoded_together) for use, part in self.rows.items()}

    def _loader(self, split: str, training: bool = False) -> Loader | list[Loader]:
        self._load()
        if split not in self._encoded:
            return []
        samples: Any = self._encoded[split]
        size = self.batch_size if training else self.eval_batch_size
        order: dict[str, Any] = {}
        if training and self.group_by_length:
            sampler = GroupedOrder(size, lengths=[len(tokens) for tokens in samples["input_ids"]])
            sampler.start(self.num_workers)
            # A Trainer on several devices would shuffle the groups otherwise.
            order = {"sampler": sampler, "generator": sampler.generator, "shuffle": False}
        elif training:
            order = shuffled(samples, size, self.num_workers)
        return DataLoader(
            samples,
            batch_size=size,
            collate_fn=Collate(self.collator()),
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            **order,
        )

    def train_dataloader(self) -> Loader | list[Loader]:
        """Training batches, in an order that follows the seed; none without a training split."""
        return self._loader("train", training=True)

    def val_dataloader(self) -> Loader | list[Loader]:
        """Validation batches; none without a validation split."""
        return self._loader("val")

    def test_dataloader(self) -> Loader | list[Loader]:
        """Test batches; none without a test split."""
        return self._loader("test")

    def predict_dataloader(self) -> Loader | list[Loader]:
        """The test batches, to be predicted."""
        return self.test_dataloader()


class GroupedOrder(FollowsEpochs, LengthGroupedSampler):
    """Samples of about the same length side by side, in a random order that follows the seed and the epoch."""


class Collate:
    """Samples to a plain dict of tensors, which every model and Trainer takes.

    Args:
        collator: of the transformers library.
    """

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def __call__(self, samples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        return dict(self.collator(list(samples)))


def token_collator(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Pads tokens and their labels alike; padding is labelled -100."""
    return DataCollatorForTokenClassification(tokenizer)
