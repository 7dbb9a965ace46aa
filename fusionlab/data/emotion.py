"""Emotions in text: sets that annotate different emotions, under one list of labels."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value

from fusionlab.checkpoints.files import read_json
from fusionlab.data.encoding import TextEncoder
from fusionlab.data.splits import split_by_column
from fusionlab.data.tables import generated, load, require_columns
from fusionlab.data.text_classification import TextClassification
from fusionlab.errors import InputError
from fusionlab.paths import expanded

UNIFIED = [
    "anger", "anticipation", "confusion", "disgust", "fear", "guilt", "joy", "love", "noemo", "sadness", "shame",
    "surprise", "trust",
]  # fmt: skip
"""The emotions that the corpus of Bostan and Klinger brings all sets to; ``noemo`` is none of them."""
LABEL_SETS = "label_sets.json"
_FILES = {"train": ("train",), "val": ("dev", "val", "validation"), "test": ("test",)}
_PRESENT = 0.1
_FEATURES = Features(
    {
        "text": Value("string"), "labels": List(Value("string")), "known": List(Value("string")),
        "source": Value("string"), "split": Value("string"),
    }
)  # fmt: skip


class Emotion(TextClassification):
    """One emotion set under the unified labels; emotions that it does not annotate are unknown, not absent.

    Two layouts are read. JSONL as the unified corpus has it (Bostan and Klinger, 2018): ``text`` and ``emotions``, a
    mapping from each emotion to a number (present above 0.1) or null (unknown), in one file, or in a folder with
    ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl``. Or Parquet with the columns ``text`` and ``labels`` (names of the
    emotions that are present) and, if there are any, ``split`` and ``source``, beside which (or in a folder above)
    ``label_sets.json`` names the emotions that each set annotates.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        labels: list[str] = UNIFIED,
        source: str | None = None,
        annotated: list[str] | None = None,
        val_split: str | None = "validation",
        val_size: int | float = 0.1,
        test_size: int | float = 0.1,
        **options: Any,
    ) -> None:
        """Say which set and which labels.

        Args:
            path: a Parquet file, a JSONL file, or a folder of JSONL files.
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            labels: the emotions in order: a model's labels, whatever this set annotates.
            source: of a file that holds several sets, the one to read.
            annotated: emotions that the set annotates, for Parquet without ``label_sets.json``.
            val_split: name of the validation split; one that the set lacks is held out.
            val_size: rows, or the share of them, held out where there is no validation split.
            test_size: rows, or the share of them, held out where there is no test split.
            options: splits, lengths and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        options = {"split_column": "split", **options}
        super().__init__(
            path, tokenizer, task="multilabel", label_column="labels", labels=list(labels), annotated=annotated,
            val_split=val_split, val_size=val_size, test_size=test_size, **options,
        )  # fmt: skip
        self.splits = dataclasses.replace(self.splits, optional=True)
        self.set_name = source
        if source is not None:
            self.name = source
        location = expanded(path)
        self.unified = location.suffix == ".jsonl" or (location.is_dir() and any(location.glob("*.jsonl")))
        if self.unified:
            self.known_column = "known"

    def encoder(self) -> TextEncoder:
        """Tokens, and 1, 0 or unknown for every label."""
        if self.annotated is None and not self.unified:
            self.annotated = _annotated(self._location(), self.set_name)
        return super().encoder()

    def read(self) -> dict[str, Dataset]:
        """The splits that the set itself has."""
        location = self._location()
        if not self.unified:
            return self._parquet()
        if location.is_file():
            return self._split(self._chosen(generated(_unified_rows, _FEATURES, [location])))
        found = {use: [location / f"{name}.jsonl" for name in names] for use, names in _FILES.items()}
        files = {use: [file for file in places if file.is_file()] for use, places in found.items()}
        rows = {
            use: self._chosen(generated(_unified_rows, _FEATURES, present)) for use, present in files.items() if present
        }
        if not rows:
            raise InputError(f"{location} has none of train.jsonl, dev.jsonl and test.jsonl")
        return rows

    def _location(self) -> Path:
        location = expanded(self.source.path)
        if not location.exists():
            raise InputError(f"{location}: there is no such file or folder; emotion sets are read from local files")
        return location

    def _parquet(self) -> dict[str, Dataset]:
        if expanded(self.source.path).suffix != ".parquet":
            raise InputError(f"{self.source.path}: a Parquet file, a JSONL file or a folder of JSONL was expected")
        rows = self._chosen(load(self.source, "train"))
        require_columns(self.source, rows, self.columns())
        return self._split(rows)

    def _chosen(self, rows: Dataset) -> Dataset:
        """The rows of the set that was asked for."""
        if self.set_name is None:
            return rows
        require_columns(self.source, rows, ["source"])
        kept = np.flatnonzero(np.asarray(rows["source"][:], dtype=object) == self.set_name)
        if not len(kept):
            raise InputError(f"{self.source.path} has no row of the set {self.set_name!r}")
        return rows.select(kept)

    def _split(self, rows: Dataset) -> dict[str, Dataset]:
        # All rows means those of splits with other names too, and those of none.
        if self.splits.test_on_all or self.source.split_column not in rows.column_names:
            return {"train": rows}
        return split_by_column(rows, self.source, self.splits.names, self.splits.optional)


def _annotated(path: Path, source: str | None) -> list[str]:
    """The annotated labels of a set by ``label_sets.json``, from beside its file or up to two folders above."""
    name = source or path.stem
    for folder in path.resolve().parents[:3]:
        if (folder / LABEL_SETS).is_file():
            sets = read_json(folder / LABEL_SETS)
            if name not in sets:
                raise InputError(f"{folder / LABEL_SETS} says nothing about {name!r}; expected data.annotated")
            return list(sets[name])
    raise InputError(
        f"{path}: no {LABEL_SETS} beside it or above says which emotions it annotates; expected data.annotated"
    )


def _unified_rows(stamps: tuple[tuple[str, int, int], ...]) -> Iterator[dict[str, Any]]:
    for path, _, _ in stamps:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _unified_row(line, f"{path}, line {number}")


def _unified_row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        values = dict(row["emotions"])
        # Valence, arousal and dominance are annotated by one set; they are labels if they are asked for.
        values |= row.get("VAD") or {}
        known = {name: float(value) for name, value in values.items() if value is not None}
        text = str(row["text"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{place}: an object with text and emotions (numbers or null) was expected") from error
    present = [name for name, value in known.items() if value > _PRESENT]
    return {
        "text": text, "labels": present, "known": list(known), "source": row.get("source"), "split": row.get("split"),
    }  # fmt: skip
