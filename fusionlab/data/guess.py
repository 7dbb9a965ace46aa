"""Guesses on some data for a head, and the words for them, as far as they are the same for data of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset

from fusionlab.data import columns, labels
from fusionlab.data.choosing import TEST, Use, chosen_splits, named
from fusionlab.data.given import Given
from fusionlab.data.purpose import Head
from fusionlab.data.tables import Source, load, require_columns, separator
from fusionlab.errors import InputError
from fusionlab.paths import expanded


@dataclass
class Guess:
    """Guesses on some data for a head, and the words for them.

    Attributes:
        data: what was said.
        head: of a checkpoint.
        use: see `fusionlab.data.choosing`.
        split_column: the column that names the split of each row, once it is known.
        told: what was guessed, in words.
        ways: options that say otherwise.
    """

    data: Given
    head: Head
    use: Use
    split_column: str | None = None
    told: list[str] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """A sentence on the guesses and on the options that say otherwise."""
        ways = f" (otherwise: {', '.join(f'--data.{way}' for way in dict.fromkeys(self.ways))})" if self.ways else ""
        return f"{self.data.path}: {'; '.join(self.told)}{ways}"

    def column(self, option: str) -> str | None:
        """The column that an option was given; None where it is to be guessed."""
        found = self.data.columns.get(option)
        return None if found is None else str(found)

    def label_column(self, parts: Sequence[Dataset], task: str, taken: tuple[str | None, ...]) -> labels.Labels | None:
        """The column of the labels; None where they are not needed and not found."""
        column, values = self.column("label_column"), self.data.label_values
        names, is_named = self.head.names, self.head.is_named
        if column is not None:
            require_columns(Source(self.data.path), parts[0], [column])
        try:
            if values is not None:
                if len(values) != len(names):
                    raise InputError(
                        f"data.label_values has {len(values)} values, and the model's {len(names)} classes are "
                        f"{', '.join(names)}; expected one for each, in this order"
                    )
                if column is None:
                    return labels.column_of_values(parts, values, taken)
                return labels.given_values(parts, column, values)
            if task == "regression":
                return labels.number_column(parts[0]) if column is None else labels.Labels(column)
            if column is not None:
                return labels.labels_in(parts, column, names, is_named)
            return labels.label_column(parts, names, is_named, taken)
        except InputError:
            if self.use == "inputs" and column is None and values is None:
                return None
            raise

    def say(self, words: str, *ways: str) -> None:
        """Tell a guess, and the options that say otherwise where they were not given."""
        self.told.append(words)
        # What was given needs no other way to be told.
        self.ways += [way for way in ways if self.data.columns.get(way) is None]

    def say_labels(self, found: labels.Labels, task: str) -> None:
        """Tell the column of the labels, and how its values are the classes."""
        classes = columns.shown(self.head.names) if self.head.is_named and task != "regression" else ""
        said = found.told or classes
        self.say(f"label from `{found.column}`{f' ({said})' if said else ''}", "label_column")
        if found.told:
            self.ways.append("label_values")

    def parts(self) -> dict[str, Dataset]:
        """The splits of the table, by their names in the data."""
        data = self.data
        found = dict(load(Source(data.path, data.config_name), None))
        if not found or not any(len(part) for part in found.values()):
            raise InputError(f"{data.path} holds no rows; expected some")
        whole, place = next(iter(found.values())), expanded(data.path)
        if place.exists() and place.suffix != ".tsv" and (between := separator(place)) not in (None, ","):
            self.say(f"columns divided by {between!r}")
        if data.split_column is not None:
            require_columns(Source(data.path), whole, [data.split_column])
        column = data.split_column or columns.split_column(whole)
        names = [] if column is None else [str(name) for name in whole.unique(column)]
        if column is None or (data.split_column is None and (len(found) > 1 or named(names, TEST) is None)):
            return found
        self.split_column = column
        if data.split_column is None:
            self.say(f"splits from `{column}`")
            self.ways.append("split_column")
        return dict.fromkeys(names, whole)

    def splits(self, parts: Mapping[str, Any], label: str | None) -> dict[str, Any]:
        """The splits to use, as options of a data module."""
        data = self.data
        chosen = chosen_splits(
            parts, self.use, label, data.train_split, data.test_split, data.test_size, data.val_split, data.val_size
        )
        self.told += chosen.told
        self.ways += chosen.ways
        return dict(chosen.options)

    def text_options(self, splits: dict[str, Any]) -> dict[str, Any]:
        """The options that all data modules of texts have."""
        data = self.data
        return {
            "max_length": data.max_length or self.head.max_length(),
            "batch_size": data.batch_size,
            "eval_batch_size": data.batch_size,
            "limit": data.limit,
            "config_name": data.config_name,
            "split_column": self.split_column,
            **splits,
        }
