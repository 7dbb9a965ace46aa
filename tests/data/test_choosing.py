"""Splits by their names; what is held out is said, and a test split whose labels are hidden is passed over."""

import pytest
from datasets import Dataset

from fusionlab.data.choosing import chosen_splits
from fusionlab.errors import InputError

ROWS = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
HIDDEN = Dataset.from_dict({"text": ["a", "b"], "label": [-1, -1]})


def test_a_test_split_is_taken_and_goes_without_saying() -> None:
    chosen = chosen_splits({"train": ROWS, "test": ROWS}, "measuring", "label", test_size=0.2)
    assert chosen.options == {"train_split": "train", "val_split": None, "test_split": "test"}
    assert chosen.told == []


def test_hidden_labels() -> None:
    """As contests have them: the validation split is measured on, and that is said."""
    chosen = chosen_splits({"train": ROWS, "validation": ROWS, "test": HIDDEN}, "measuring", "label", test_size=0.2)
    assert chosen.options["test_split"] == "validation"
    assert chosen.told == ["measured on the split `validation`"]
    assert chosen.ways == ["test_split"]


def test_rows_are_held_out() -> None:
    chosen = chosen_splits({"train": ROWS}, "measuring", test_size=0.2)
    assert chosen.options == {"train_split": "train", "val_split": None, "test_split": None, "test_size": 0.2}
    assert "20% of the rows are held out" in chosen.told[0]
    assert chosen_splits({"train": ROWS}, "measuring", test_size=7).told[0].startswith("no test split, so 7 of")
    assert "left out" in chosen_splits({"train": ROWS}, "inputs", test_size=0.2).told[0]
    # A single split is the one to train on, whatever it is called; one called test is measured on alone.
    assert chosen_splits({"all": ROWS}, "measuring", test_size=0.2).options["train_split"] == "all"
    alone = chosen_splits({"test": ROWS}, "measuring", "label", test_size=0.2)
    assert (alone.options["train_split"], alone.options["test_split"], alone.told) == (None, "test", [])
    assert chosen_splits({"test": ROWS}, "inputs", "label").options["train_split"] == "test"


def test_settings_are_chosen_on_a_validation_split_that_is_not_measured_on() -> None:
    """The one that is called so, another that is given, or rows of training; never one whose labels are hidden."""
    parts = {"train": ROWS, "validation": ROWS, "test": ROWS, "odd": ROWS}
    assert chosen_splits(parts, "measuring", "label").options["val_split"] == "validation"
    assert chosen_splits(parts, "measuring", "label", val_split="odd", val_size=3).options == {
        "train_split": "train",
        "val_split": "odd",
        "test_split": "test",
    }
    measured = chosen_splits({"train": ROWS, "dev": ROWS}, "measuring", "label", val_size=0.3).options
    assert measured == {"train_split": "train", "val_split": None, "val_size": 0.3, "test_split": "dev"}
    given = chosen_splits({"train": ROWS, "dev": ROWS}, "measuring", "label", val_split="dev", test_size=0.2).options
    assert given == {"train_split": "train", "val_split": "dev", "test_split": None, "test_size": 0.2}
    hidden = chosen_splits({"train": ROWS, "validation": HIDDEN, "test": ROWS}, "measuring", "label")
    assert hidden.options["val_split"] is None
    assert chosen_splits({"train": ROWS}, "measuring", test_size=2, val_size=3).options == {
        "train_split": "train",
        "val_split": None,
        "val_size": 3,
        "test_split": None,
        "test_size": 2,
    }
    with pytest.raises(InputError, match=r"data\.val_split is 'no'; expected one of the splits of the data: train"):
        chosen_splits({"train": ROWS}, "measuring", val_split="no")


def test_out_of_domain_all_rows_count() -> None:
    assert chosen_splits({"train": ROWS}, "outside").options["test_on_all"] is True
    assert chosen_splits({"train": ROWS, "test": ROWS}, "outside").options["train_split"] == "test"


def test_what_is_given_is_taken() -> None:
    chosen = chosen_splits({"train": ROWS, "test": ROWS, "odd": ROWS}, "measuring", "label", None, "odd", 0.2)
    assert chosen.options["test_split"] == "odd"
    with pytest.raises(InputError, match=r"data\.test_split is 'no'; expected one of the splits of the data: train"):
        chosen_splits({"train": ROWS}, "measuring", test_split="no")
    with pytest.raises(InputError, match=r"not clear; expected data\.test_split"):
        chosen_splits({"a": ROWS, "b": ROWS}, "measuring")
