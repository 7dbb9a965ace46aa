"""Pairs of texts, each read by itself, and the number of both."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from fusionlab.data import EmbeddingSimilarity
from fusionlab.errors import InputError
from tests.checkpoints.embedding_models import embedding_model

ROWS: list[tuple[str, str, Any]] = [
    ("a b", "c d e f", 5), ("g", "h", 2.5), ("i j k", "l", 0), ("m n", "m n o", 4), ("p", "q r", 1), ("s t", "u", 3)
]  # fmt: skip


def table(folder: Path, rows: list[tuple[str, str, Any]] = ROWS) -> Path:
    """A file of pairs."""
    path = folder / "pairs.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *rows])
    return path


def data(folder: Path, rows: list[tuple[str, str, Any]] = ROWS, **options: Any) -> EmbeddingSimilarity:
    model = folder / "model"
    if not model.exists():
        embedding_model(model, 0)
    given = {"train_split": None, "test_split": "train", "eval_batch_size": 4, **options}
    return EmbeddingSimilarity(str(table(folder, rows)), str(model), **given)


def test_batches(tmp_path: Path) -> None:
    """The texts of a pair stand one after the other, padded alike, with the number of the pair over the scale."""
    found = data(tmp_path, scale=5)
    first, second = list(found.test_dataloader())
    assert first["input_ids"].shape == first["attention_mask"].shape == (8, 6)
    assert second["input_ids"].shape == (4, 4)
    labels = torch.cat([first["labels"], second["labels"]])
    torch.testing.assert_close(labels, torch.tensor([row[2] / 5 for row in ROWS]).repeat_interleave(2))
    read = [
        found.tokenizer.decode(row[: int(n)])
        for row, n in zip(first["input_ids"], first["attention_mask"].sum(1), strict=True)
    ]
    assert read == [f"[CLS] {text} [SEP]" for row in ROWS[:4] for text in row[:2]]
    assert found.texts("test")[0] == "a b c d e f"


@pytest.mark.parametrize(("mode", "expected"), [("mean", "mean"), ("cls", "cls")])
def test_pooling_is_that_of_the_folder(tmp_path: Path, mode: str, expected: str) -> None:
    """Unless another one is asked for."""
    embedding_model(tmp_path / "model", 0, pooling=mode)
    assert data(tmp_path).pooling == expected
    assert data(tmp_path, pooling="cls").pooling == "cls"


def test_wrong_values_are_refused(tmp_path: Path) -> None:
    """Scales, poolings and labels."""
    with pytest.raises(InputError, match=r"data\.scale is 0; expected a number above 0"):
        data(tmp_path, scale=0)
    with pytest.raises(InputError, match=r"data\.pooling is 'max'; expected one of mean, cls"):
        data(tmp_path, pooling="max")
    with pytest.raises(InputError, match="holds 'high', but a number was expected for each pair"):
        data(tmp_path, [("a", "b", "high"), ("c", "d", "low")]).setup("test")
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text('{"pooling_mode": ["mean", "max"]}')
    with pytest.raises(InputError, match="pools tokens by mean and max; expected mean or cls"):
        _ = data(tmp_path).pooling
