"""Several sets as one: all rows once, shuffled together for training; parts that do not fit are refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from transformers import AutoTokenizer

from fusionlab.data import Digits, EmbeddingSimilarity, TextClassification, TextToText, Union
from fusionlab.data.contract import described
from fusionlab.errors import InputError
from fusionlab.tasks import ExportCheckpoint, SequenceClassification
from tests.grid.toys import Words
from tests.tasks.sample import bert, jsonl


def labels(loader: object) -> list[int]:
    return [int(label) for batch in loader for label in batch["labels"]]  # type: ignore[attr-defined]


def test_facts_of_the_parts() -> None:
    """Those that all state; what they state otherwise is refused."""
    parts = [EmbeddingSimilarity("x.csv", "bytes", pooling=pooling) for pooling in ("cls", "cls", "mean")]
    assert described(Union(parts[:2])).pooling == "cls"  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"data\.parts have pooling 'cls' and 'mean'"):
        _ = described(Union(parts)).pooling  # type: ignore[arg-type]
    texts = TextToText("x.csv", "bytes", decoder_start=3)
    assert described(Union([texts])).decoder_start == 3


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
    assert labels(union.predict_dataloader()) == labels(union.test_dataloader())
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
        Union([Words(), Words(task="multilabel")]).setup("fit")


def texts(folder: Path, tokenizer: str, labels: Sequence[str] = ("no", "yes")) -> TextClassification:
    rows = [{"text": f"it is {number}", "label": number % 2} for number in range(4)]
    splits: Any = {"train_split": "train", "test_split": "train"}
    return TextClassification(jsonl(folder / "x.jsonl", rows), tokenizer, labels=list(labels), **splits)


def test_texts_have_one_tokenizer(tmp_path: Path, tokenizer: str) -> None:
    """It is that of all parts, and is exported with a fresh model; other ones and other labels are refused."""
    union = Union([texts(tmp_path, tokenizer), texts(tmp_path, tokenizer)], batch_size=8)
    task = SequenceClassification(bert(), ["no", "yes"])
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[ExportCheckpoint(str(tmp_path / "out"))],
    )  # fmt: skip
    trainer.fit(task, datamodule=union)
    text = "it is alone"
    assert union.vocabulary_size == len(union.parts[0].tokenizer)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"] == union.tokenizer(text)["input_ids"]
    with pytest.raises(InputError, match=r"data\.parts have different tokenizers"):
        Union([texts(tmp_path, tokenizer), texts(tmp_path, "bytes")]).setup("fit")
    with pytest.raises(InputError, match=r"data\.parts have class_names \['no', 'yes'\] and \['yes', 'no'\]"):
        Union([texts(tmp_path, tokenizer), texts(tmp_path, tokenizer, ["yes", "no"])]).setup("fit")
    with pytest.raises(InputError, match=r"tokenizer of the data has \d+ tokens, but the model has embeddings for 9"):
        trainer.test(SequenceClassification(bert(vocab_size=9), ["no", "yes"]), datamodule=union)
