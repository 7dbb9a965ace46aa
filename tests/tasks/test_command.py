"""`fusionlab fit` and `predict` for text, from YAML."""

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoTokenizer, BertForSequenceClassification, BertForTokenClassification

from fusionlab.commands import train
from tests.tasks.sample import EMOTIONS, FEELINGS, SENTENCES, TAGS, bert, jsonl


def config(folder: Path, task: str, arguments: dict[str, Any], data: str, options: dict[str, Any]) -> None:
    export = {"class_path": "fusionlab.tasks.ExportCheckpoint", "init_args": {"output": "out"}}
    splits = {"train_split": "train", "val_split": "train", "test_split": "train", "batch_size": 4}
    content = {
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "callbacks": [export]},
        "model": {"class_path": f"fusionlab.tasks.{task}", "init_args": {"model": bert(), **arguments}},
        "data": {"class_path": f"fusionlab.data.{data}", "init_args": {**splits, **options}},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(content))


def predicted(folder: Path) -> list[list[str]]:
    (checkpoint,) = folder.glob("logs/small/version_0/checkpoints/*.ckpt")
    train.run("predict", ["--config", "small", "--ckpt_path", str(checkpoint)])
    (file,) = folder.glob("logs/small/*/predictions.csv")
    return list(csv.reader(file.open()))


def test_several_labels(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fit shows the scores and how many test texts were trained on; predict writes each label's probability."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    path = jsonl(tmp_path / "x.jsonl", [{"text": text, "label": labels} for text, labels in FEELINGS])
    shared = {"task": "multilabel", "labels": EMOTIONS}
    config(
        tmp_path, "SequenceClassification", {**shared, "class_weights": "sqrt", "learning_rate": 1e-3},
        "TextClassification", {**shared, "path": path, "tokenizer": tokenizer},
    )  # fmt: skip
    train.run("fit", ["--config", "small"])
    table = capsys.readouterr().out
    for shown in ("val/macro_f1", "test/micro_f1", "8 of 8 (100.0 %)"):
        assert shown in table
    assert "val/score" not in table
    BertForSequenceClassification.from_pretrained(tmp_path / "out")
    AutoTokenizer.from_pretrained(tmp_path / "out")
    header, *rows = predicted(tmp_path)
    assert header == ["sample", "predicted", *EMOTIONS]
    assert len(rows) == len(FEELINGS)
    for row in rows:
        chosen = [name for name, value in zip(EMOTIONS, row[2:], strict=True) if float(value) >= 0.5]
        assert row[1].split() == chosen


def test_tags(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict writes one row for each word."""
    monkeypatch.chdir(tmp_path)
    rows = [{"tokens": text.split(), "ner_tags": tags.split()} for text, tags in SENTENCES]
    options = {"path": jsonl(tmp_path / "x.jsonl", rows), "tokenizer": tokenizer}
    config(tmp_path, "TokenClassification", {"labels": TAGS}, "NER", options)
    train.run("fit", ["--config", "small"])
    BertForTokenClassification.from_pretrained(tmp_path / "out")
    found = predicted(tmp_path)
    assert len(found) == 1 + sum(len(text.split()) for text, _ in SENTENCES)
    assert {row[2] for row in found[1:]} <= set(TAGS)
