"""Columns guessed by names, types and the labels of a head; what cannot be guessed names the option that says it."""

from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from fusionlab.data.columns import label_column, labels_in, number_column, split_column, text_columns, word_columns
from fusionlab.errors import InputError

NAMES = ["negative", "positive"]


def table(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": ["a"], "Review": ["good"]}, ("Review", None)),
        ({"premise": ["a"], "hypothesis": ["b"], "text": ["c"]}, ("premise", "hypothesis")),
        ({"who": ["me"], "opinion": ["what a long and lovely day"]}, ("opinion", None)),
        ({"sentence1": ["a"], "sentence2": [3]}, ("sentence1", None)),
    ],
)
def test_the_texts(columns: dict[str, list[Any]], expected: tuple[str, str | None]) -> None:
    """By names; without any, the column with the longest texts. A column of numbers holds none."""
    assert text_columns(table(**columns)) == expected


def test_no_texts() -> None:
    with pytest.raises(InputError, match=r"columns: n.*data.text_column"):
        text_columns(table(n=[1]))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["negative", "positive"], None),
        (["Positive ", "Negative"], ["Negative", "Positive "]),
        ([0, 1, -100], None),
        ([1, 2, 2], [1, 2]),
        ([False, True], None),
    ],
)
def test_values_of_labels(column: list[Any], values: list[Any] | None) -> None:
    """Names in any case, numbers from 0 or from 1, switches."""
    found = labels_in([table(stars=column)], "stars", NAMES, True)
    assert (found.column, found.values) == ("stars", values)


def test_classes_of_the_data_in_another_order() -> None:
    """They are found by their names, not by their numbers."""
    features = Features({"label": ClassLabel(names=["positive", "negative"]), "x": Value("string")})
    rows = Dataset.from_dict({"label": [0, 1], "x": ["a", "b"]}, features=features)
    assert labels_in([rows], "label", NAMES, True).values == [1, 0]
    # Other names are other words for the same, and that is said; a few of the names are a misfit.
    told = labels_in([rows], "label", ["bad", "good"], True)
    assert told.values is None
    assert "positive for bad" in told.told
    with pytest.raises(InputError, match="label_values"):
        labels_in([rows], "label", ["positive", "neutral"], True)
    assert labels_in([rows], "label", ["0", "1"], False).told == ""


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"text": ["a", "b"], "label": [0, 1], "sentiment": ["negative", "positive"]}, "label"),
        ({"text": ["a", "b"], "label": ["x", "y"], "said": ["negative", "positive"]}, "said"),
        ({"idx": [0, 1], "whatever": [1, 0]}, "whatever"),
    ],
)
def test_the_labels(columns: dict[str, list[Any]], expected: str) -> None:
    """Named as labels and holding classes; else the one other column that does; numbers of rows are none."""
    assert label_column([table(**columns)], NAMES, True, ["text"]).column == expected


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"a": [0, 1], "b": [1, 0]}, "both a and b may hold the labels; expected data.label_column"),
        ({"label": ["good", "bad"]}, "column 'label' holds bad, good, .* are negative, positive; .*data.label_values"),
        ({"label": [0, 7]}, "data.label_values"),
        ({"words": ["a", "b"]}, "no column holds labels of the model, which are negative, positive"),
    ],
)
def test_labels_that_cannot_be_guessed(columns: dict[str, list[Any]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        label_column([table(**columns)], NAMES, True)


def test_other_columns() -> None:
    """Numbers of a regression, words with tags, splits."""
    assert number_column(table(score=[3], other=[0.5])).column == "score"
    assert number_column(table(n=[3], degree=[0.5])).column == "degree"
    with pytest.raises(InputError, match="not clear"):
        number_column(table(a=[0.5], b=[0.5]))
    assert word_columns(table(words=[["a"]], tags=[["O"]], text=["a"])) == ("words", "tags")
    with pytest.raises(InputError, match=r"data\.token_column"):
        word_columns(table(text=["a"]))
    assert split_column(table(Split=["train"])) == "Split"
    assert split_column(table(text=["train"])) is None
