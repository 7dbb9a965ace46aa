"""Columns of labels, guessed by names, by the labels of a head or by given values; what fails names the option."""

from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from fusionlab.data.labels import column_of_values, given_values, label_column, labels_in, number_column
from fusionlab.errors import InputError

NAMES = ["negative", "positive"]


def table(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["negative", "positive"], None),
        (["Positive ", "Negative"], ["Negative", "Positive "]),
        ([0, 1, -100], None),
        ([1, 2, 2], [1, 2]),
        ([False, True], [False, True]),
        ([0.0, 1.0, None], [0, 1]),
        ([1.0, 2.0, float("nan")], [1, 2]),
    ],
)
def test_values_of_labels(column: list[Any], values: list[Any] | None) -> None:
    """Names in any case, numbers from 0 or from 1, decimal where one is missing, switches."""
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
    # Nor are numbers alone names of the model: the order of the data's classes is said then too.
    assert (
        "positive for LABEL_0, negative for LABEL_1" in labels_in([rows], "label", ["LABEL_0", "LABEL_1"], False).told
    )
    numbered = Features({"label": ClassLabel(names=["0", "10", "2"])})
    counted = Dataset.from_dict({"label": [0, 1, 2]}, features=numbered)
    found = labels_in([counted], "label", [str(index) for index in range(11)], False)
    assert (found.told, [(found.values or []).index(label) for label in range(3)]) == ("", [0, 10, 2])


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


@pytest.mark.parametrize(
    ("columns", "values", "expected"),
    [
        ({"stars": [5, 1]}, [1, 5], [1, 5]),
        ({"stars": [5.0, 1.0, None]}, [1, 5], [1.0, 5.0]),
        ({"stars": [5, 1]}, ["1", "5"], [1, 5]),
        ({"stars": ["5", "1"]}, [1, 5], ["1", "5"]),
        ({"stars": [True, False]}, [True, False], [True, False]),
        ({"stars": ["bad", "good"], "text": ["a", "b"]}, ["good", "bad"], ["good", "bad"]),
        ({"other": [1, 5], "stars": [5, 1], "third": [1, 5]}, [1, 5], [1, 5]),
        ({"stars": [-1, 1]}, [-1, 1], [-1, 1]),
    ],
)
def test_the_column_of_given_values(columns: dict[str, list[Any]], values: list[Any], expected: list[Any]) -> None:
    """Numbers, text and switches are found however they were typed, in the column that is named as labels are."""
    found = column_of_values([table(**columns)], values)
    assert (found.column, found.values) == ("stars", expected)


def test_given_values_that_no_column_holds() -> None:
    with pytest.raises(InputError, match=r"no column holds 1, 4 and nothing else .*'stars' holds 1, 5.*label_column"):
        column_of_values([table(text=["a", "b"], stars=[1, 5])], [1, 4])
    with pytest.raises(InputError, match="both a and b may hold the labels"):
        column_of_values([table(a=[1, 5], b=[1, 5])], [1, 5])


def test_given_names_of_classes_of_the_data() -> None:
    """They stand for the classes' numbers, which is what the column holds."""
    rows = Dataset.from_dict({"label": [0, 1]}, features=Features({"label": ClassLabel(names=["cat", "dog"])}))
    assert given_values([rows], "label", ["dog", "cat"]).values == [1, 0]
    assert column_of_values([rows], ["dog", "cat"]).values == [1, 0]


def test_numbers_of_a_regression() -> None:
    assert number_column(table(score=[3], other=[0.5])).column == "score"
    assert number_column(table(n=[3], degree=[0.5])).column == "degree"
    with pytest.raises(InputError, match="not clear"):
        number_column(table(a=[0.5], b=[0.5]))
