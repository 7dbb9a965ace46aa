"""Emotion sets in both layouts: what a set does not annotate is unknown, whichever way it says so."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest

from fusionlab.data import Emotion
from fusionlab.data.emotion import UNIFIED
from fusionlab.errors import InputError
from tests.tasks.sample import jsonl

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "emotion"
LABELS = ["anger", "joy", "love"]


def unified(text: str, split: str | None = None, source: str = "one", **emotions: float | None) -> dict[str, Any]:
    return {"text": text, "emotions": {name: emotions.get(name) for name in UNIFIED}, "split": split, "source": source}


def labels(data: Emotion, split: str = "test") -> dict[str, list[int]]:
    data.setup("test")
    return dict(zip(data.texts(split), data._encoded[split]["labels"], strict=True))


def test_unified_jsonl(tmp_path: Path, tokenizer: str) -> None:
    """Above 0.1 is present, null is unknown row by row; the file's own source is chosen."""
    rows = [
        unified("a", anger=1, joy=0), unified("b", anger=0.05, joy=0.2, love=0), unified("c", source="two", love=1),
    ]  # fmt: skip
    path = jsonl(tmp_path / "unified.jsonl", rows)
    data = Emotion(path, tokenizer, labels=LABELS, source="one", test_on_all=True)
    assert labels(data) == {"a": [1, 0, -100], "b": [0, 1, 0]}
    assert (data.name, data.task, data.class_names) == ("one", "multilabel", LABELS)


def test_folder_of_splits(tmp_path: Path, tokenizer: str) -> None:
    """train.jsonl, dev.jsonl and test.jsonl are used as they are; valence is a label if it is asked for."""
    folder = tmp_path / "isear"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        jsonl(folder / f"{name}.jsonl", [unified(name, joy=1) | {"VAD": {"valence": 0.5, "arousal": None}}])
    data = Emotion(str(folder), tokenizer, labels=["joy", "valence", "arousal"])
    assert [data.texts(split) for split in ("train", "val", "test")] == [["train"], ["dev"], ["test"]]
    assert labels(data) == {"test": [1, 1, -100]}
    assert data.name == "isear"


def parquet(folder: Path, annotated: dict[str, list[str]] | None, splits: Sequence[str | None] = (None,) * 3) -> str:
    columns = {"text": ["a", "b", "c"], "labels": [["joy"], [], ["anger", "joy"]], "split": list(splits)}
    (folder / "open").mkdir(exist_ok=True)
    datasets.Dataset.from_dict(columns).to_parquet(str(folder / "open" / "small.parquet"))
    if annotated is not None:
        (folder / "label_sets.json").write_text(json.dumps(annotated))
    return str(folder / "open" / "small.parquet")


def test_parquet_with_label_sets(tmp_path: Path, tokenizer: str) -> None:
    """The list above the file says what is annotated; a set without splits has some held out."""
    path = parquet(tmp_path, {"small": ["anger", "joy"]})
    data = Emotion(path, tokenizer, labels=LABELS, test_on_all=True)
    assert labels(data) == {"a": [0, 1, -100], "b": [0, 0, -100], "c": [1, 1, -100]}
    split = Emotion(path, tokenizer, labels=LABELS)
    assert [len(split.texts(use)) for use in ("train", "val", "test")] == [1, 1, 1]


def test_all_rows_are_those_of_every_split(tmp_path: Path, tokenizer: str) -> None:
    """Out of domain, rows of splits with other names and of none are tested on too."""
    path = parquet(tmp_path, {"small": ["anger", "joy"]}, ["trial", "test", None])
    assert sorted(labels(Emotion(path, tokenizer, labels=LABELS, test_on_all=True))) == ["a", "b", "c"]


def test_what_is_annotated_must_be_known(tmp_path: Path, tokenizer: str) -> None:
    """Without a list nothing is guessed."""
    path = parquet(tmp_path, None)
    with pytest.raises(InputError, match=r"label_sets\.json"):
        Emotion(path, tokenizer).setup("fit")
    assert labels(Emotion(path, tokenizer, labels=LABELS, annotated=["joy"], test_on_all=True))["b"] == [-100, 0, -100]
    with pytest.raises(InputError, match=r"says nothing about 'small'"):
        Emotion(parquet(tmp_path, {"other": ["joy"]}), tokenizer).setup("fit")


@pytest.mark.parametrize("name", ["dailydialog", "dailydialog.parquet", "dailydialog.jsonl"])
def test_what_is_missing_is_called_missing(tmp_path: Path, tokenizer: str, name: str) -> None:
    """Whatever layout the name tells of, also where annotations are found."""
    (tmp_path / "label_sets.json").write_text(json.dumps({"dailydialog": LABELS}))
    data = Emotion(str(tmp_path / name), tokenizer, labels=LABELS)
    with pytest.raises(InputError, match=rf"{name}: there is no such file or folder"):
        data.setup("test")


@pytest.mark.parametrize("line", ["{", '{"text": "a"}', '{"text": "a", "emotions": {"joy": "much"}}', "[]"])
def test_damaged_line(tmp_path: Path, tokenizer: str, line: str) -> None:
    """File and line are named."""
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(unified("a", joy=1)) + f"\n{line}\n")
    with pytest.raises(InputError, match=r"x\.jsonl, line 2: an object with text and emotions"):
        Emotion(str(path), tokenizer).setup("fit")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the emotion sets are not beside the repository")
def test_a_real_set(tokenizer: str) -> None:
    """ISEAR: seven emotions annotated, one present in each row, splits held out as published sizes ask."""
    data = Emotion(str(SHARED / "research_only" / "isear.parquet"), tokenizer, limit=300)
    found = labels(data, "train")
    known = [name for name, value in zip(UNIFIED, next(iter(found.values())), strict=True) if value != -100]
    assert known == ["anger", "disgust", "fear", "guilt", "joy", "sadness", "shame"]
    assert all(sum(value for value in row if value > 0) == 1 for row in found.values())
    counts = data.label_counts()
    assert counts.shape == (13, 2)
    assert counts[UNIFIED.index("noemo")].tolist() == [0, 0]
