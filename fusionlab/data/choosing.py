"""Chooses the splits to train and to measure on by their names; holds rows out where there is none to measure on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset

from fusionlab.data.tables import FILE_BUILDERS
from fusionlab.errors import InputError

Use = Literal["measuring", "outside", "inputs"]
# Of words with tags, one a line; files with other endings of tables hold rows.
LINES = (".conll", ".iob", ".iob2", ".bio", ".conllu", ".txt", ".tsv")
TRAIN, TEST, OTHER = ("train", "training"), ("test", "testing"), ("validation", "valid", "val", "dev")


@dataclass(frozen=True)
class ChosenSplits:
    """The splits of some data.

    Attributes:
        options: for a data module.
        told: what was chosen, in words; nothing where it goes without saying.
        ways: options that choose otherwise.
    """

    options: dict[str, Any]
    told: list[str] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)


def chosen_splits(
    parts: Mapping[str, Any],
    use: Use,
    label: str | None = None,
    train_split: str | None = None,
    test_split: str | None = None,
    test_size: int | float = 0,
    val_split: str | None = None,
    val_size: int | float = 0,
) -> ChosenSplits:
    """The splits to use.

    Args:
        parts: the splits of the data, by name; tables, where the labels of a test split can be looked at.
        use: ``measuring``, ``outside`` (all rows are measured on) or ``inputs``.
        label: column of the labels.
        train_split: the one to train on, where it is not to be guessed.
        test_split: the one to measure on, where it is not to be guessed.
        test_size: rows, or below 1 the share of them, to hold out where there is no split to measure on.
        val_split: the one to choose settings on, where it is not to be guessed.
        val_size: rows, or below 1 the share of them, to hold out of training where there is no such split.

    Raises:
        InputError: there is no such split, or which to use is not clear.
    """
    for option, name in (("train_split", train_split), ("val_split", val_split), ("test_split", test_split)):
        if name is not None and name not in parts:
            raise InputError(f"data.{option} is {name!r}; expected one of the splits of the data: {', '.join(parts)}")
    train = train_split or named(parts, TRAIN) or _only(parts, use, label)
    test = test_split or _tested(parts, label, (train, val_split))
    if use == "outside":
        told = [] if test else ["measured on all of its rows"]
        return ChosenSplits(
            {"train_split": test or train, "val_split": None, "test_split": None, "test_on_all": True}, told
        )
    train = None if train == test else train
    held_out: dict[str, Any] = {"val_split": val_split or _labelled(parts, OTHER, label, (train, test))}
    if held_out["val_split"] is None and train is not None and val_size:
        held_out["val_size"] = val_size
    if test is not None:
        is_plain = test_split is not None or Path(test).stem.lower() in TEST
        return ChosenSplits(
            {"train_split": train, **held_out, "test_split": test},
            [] if is_plain else [f"measured on the split `{test}`"],
            [] if is_plain else ["test_split"],
        )
    if train is None:
        raise InputError(
            f"which of the splits {', '.join(parts)} to measure on is not clear; expected data.test_split, one of them"
        )
    options = {"train_split": train, **held_out, "test_split": None, "test_size": test_size}
    if not test_size:
        return ChosenSplits(options)
    share = f"{test_size:.0%}" if test_size < 1 else f"{int(test_size)}"
    words = f"no test split, so {share} of the rows are held out to measure on, always the same (scores are too high "
    words += "if the models were trained on them)"
    if use == "inputs":
        words = f"no test split, so {share} of the rows are left out, as they are where this file is measured on"
    return ChosenSplits(options, [words], ["test_split", "test_size"])


def _only(parts: Mapping[str, Any], use: Use, label: str | None) -> str | None:
    """The only split, unless it is called test and is measured on."""
    if len(parts) > 1 or (use == "measuring" and _labelled(parts, TEST, label, ())):
        return None
    return next(iter(parts))


def named(parts: Iterable[str], names: Sequence[str]) -> str | None:
    """The first split whose name, or the name of whose file, is one of some.

    Args:
        parts: the splits of the data, by name.
        names: in small letters.
    """
    return next((part for name in names for part in parts if Path(part).stem.lower() == name), None)


def conll_files(place: Path) -> dict[str, Path]:
    """The CoNLL files that a path stands for, by the name of the split that a data module gives them.

    Args:
        place: a file or a folder.
    """
    if place.is_file():
        is_table = place.suffix in FILE_BUILDERS and place.suffix not in LINES
        return {} if is_table else {"train": place}
    known = (*TRAIN, *TEST, *OTHER)
    files = sorted(place.iterdir()) if place.is_dir() else []
    return {file.name: file for file in files if file.suffix in LINES and file.stem.lower() in known}


def _tested(parts: Mapping[str, Any], label: str | None, others: Sequence[str | None]) -> str | None:
    """The split to measure on: called test and labelled, else called as validation splits are, else none of others."""
    return _labelled(parts, TEST, label, others) or _labelled(parts, OTHER, label, others)


def _labelled(
    parts: Mapping[str, Any], names: Sequence[str], label: str | None, but: Iterable[str | None]
) -> str | None:
    """The first split of some names that is none of others, unless its labels are hidden."""
    name = named(parts, names)
    if name is None or name in but:
        return None
    rows = parts[name]
    # Contests keep the labels of their test splits to themselves.
    hidden = label is not None and isinstance(rows, Dataset) and set(_values(rows, label)) <= {-1, None}
    return None if hidden else name


def _values(rows: Dataset, column: str) -> list[Any]:
    values = rows[column][:]
    # Of answers as SQuAD has them: hidden where no text is among them.
    values = [(value.get("text") or None) if isinstance(value, dict) else value for value in values]
    return [0 if isinstance(value, list) else value for value in values]
