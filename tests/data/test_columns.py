"""Columns guessed by names, types and the labels of a head; what cannot be guessed names the option that says it."""

from typing import Any

import pytest
from datasets import Dataset

from fusionlab.data.columns import pair_columns, split_column, target_columns, text_columns, word_columns
from fusionlab.errors import InputError


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
    ("columns", "given", "expected"),
    [
        ("id article highlights", {}, ("article", "highlights")),
        ("summary dialogue id", {}, ("dialogue", "summary")),
        ("input output", {}, ("input", "output")),
        ("en de", {}, ("en", "de")),
        ("context question answer", {}, ("question", "answer")),
        ("en de fr", {"target": "fr", "text": "de"}, ("de", "fr")),
        ("en de", {"target": "en"}, ("de", "en")),
        ("en de", {"text": "de"}, ("de", "en")),
        ("text target", {"text": "target", "target": "text"}, ("target", "text")),
    ],
)
def test_texts_and_their_targets(columns: str, given: dict[str, str], expected: tuple[str, str]) -> None:
    """By names; without any, the first and the second column of two."""
    assert target_columns(table(**{name: ["a"] for name in columns.split()}), **given) == expected


@pytest.mark.parametrize(
    ("columns", "given"), [("en", {}), ("en de fr", {}), ("summary one two", {}), ("en de fr", {"text": "en"})]
)
def test_no_targets(columns: str, given: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"expected data\.text_column and data\.target_column, two of them"):
        target_columns(table(**{name: ["a"] for name in columns.split()}, n=[1]), **given)


@pytest.mark.parametrize(
    ("columns", "given", "expected"),
    [
        ("id sentence1 sentence2", {}, ("sentence1", "sentence2")),
        ("left right", {}, ("left", "right")),
        ("a b c", {"first": "c", "second": "a"}, ("c", "a")),
        ("a b", {"second": "a"}, ("b", "a")),
        ("a b", {"first": "a"}, ("a", "b")),
        ("a b split", {"taken": ["split"]}, ("a", "b")),
    ],
)
def test_pairs_of_texts(columns: str, given: dict[str, Any], expected: tuple[str, str]) -> None:
    """By names; without any, two columns of texts in their order."""
    assert pair_columns(table(**{name: ["a"] for name in columns.split()}), **given) == expected


@pytest.mark.parametrize("columns", ["a", "a b c"])
def test_no_pairs(columns: str) -> None:
    with pytest.raises(InputError, match=r"expected data\.text_column and data\.pair_column, two of them"):
        pair_columns(table(**{name: ["a"] for name in columns.split()}, n=[1]))


def test_other_columns() -> None:
    """Words with tags, splits."""
    assert word_columns(table(words=[["a"]], tags=[["O"]], text=["a"])) == ("words", "tags")
    with pytest.raises(InputError, match=r"data\.token_column"):
        word_columns(table(text=["a"]))
    assert split_column(table(Split=["train"])) == "Split"
    assert split_column(table(text=["train"])) is None
