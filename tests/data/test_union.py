"""Several sets as one: all rows once, shuffled together for training; parts that do not fit are refused."""

import pytest
import torch
from lightning.pytorch import seed_everything

from fusionlab.data import Digits, Union
from fusionlab.errors import InputError
from tests.grid.toys import Words


def labels(loader: object) -> list[int]:
    return [int(label) for batch in loader for label in batch["labels"]]  # type: ignore[attr-defined]


def test_all_rows_once() -> None:
    """Training rows of all parts, mixed, in an order that follows the seed; test rows part by part."""
    parts = [Digits(classes=[0, 1]), Digits(classes=[2])]
    union = Union(parts, batch_size=7)  # type: ignore[arg-type]
    union.prepare_data()
    union.setup("fit")
    wanted = [label for part in parts for label in labels(part.train_dataloader())]
    seed_everything(3, verbose=False)
    found = labels(union.train_dataloader())
    assert sorted(found) == sorted(wanted)
    assert 2 in found[: len(found) // 4]
    seed_everything(3, verbose=False)
    assert labels(union.train_dataloader()) == found
    seed_everything(4, verbose=False)
    assert labels(union.train_dataloader()) != found
    assert next(iter(union.train_dataloader()))["labels"].shape == (7,)
    assert labels(union.test_dataloader()) == [label for part in parts for label in labels(part.test_dataloader())]


def test_what_the_parts_say() -> None:
    """Task and texts are theirs; label counts add up."""

    class Counted(Words):
        def label_counts(self) -> torch.Tensor:
            return torch.arange(self.classes)

    union = Union([Counted("a"), Counted("b")])
    assert (union.name, union.task, union.class_names) == ("a+b", "classification", None)
    assert union.texts("train") == ["train of a", "the same everywhere", "train of b", "the same everywhere"]
    assert union.label_counts().tolist() == [0, 2, 4, 6]


def test_parts_that_do_not_fit() -> None:
    """Nothing at all, and other tasks."""
    with pytest.raises(InputError, match=r"data\.parts is empty"):
        Union([])
    with pytest.raises(InputError, match=r"data\.batch_size is 0"):
        Union([Words()], batch_size=0)
    with pytest.raises(InputError, match=r"data\.parts have task 'classification' and 'multilabel'"):
        _ = Union([Words(), Words(task="multilabel")]).task
