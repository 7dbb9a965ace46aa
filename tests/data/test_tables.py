"""Tables that are divided by other characters than commas: one file, and all of a folder."""

from pathlib import Path

import pytest
from datasets import Dataset

from fusionlab.data.tables import Source, load, separator
from fusionlab.errors import InputError

ROWS = [{"text": f"so many words, {i} of them", "label": ("good", "bad")[i % 2]} for i in range(10)]


def tables(place: Path, between: str, suffix: str) -> Path:
    """A folder with a table to train on and one to test on."""
    place.mkdir()
    (place / "README.md").write_text("mine")
    for name, count in (("train", 10), ("test", 5)):
        table = Dataset.from_list(ROWS[:count])
        table.to_csv(str(place / f"{name}.{suffix}"), sep=between, index=False)
    return place


@pytest.mark.parametrize(
    ("between", "suffix"), [(";", "csv"), ("|", "csv"), ("\t", "csv"), ("\t", "tsv"), (",", "csv")]
)
def test_a_folder_is_read_as_its_files_are(between: str, suffix: str, tmp_path: Path) -> None:
    """What is no table beside them changes nothing."""
    place = tables(tmp_path / "tables", between, suffix)
    found = load(Source(str(place)), None)
    assert {name: list(part) for name, part in found.items()} == {"train": ROWS, "test": ROWS[:5]}
    assert separator(place) == separator(place / f"train.{suffix}") == between
    assert list(load(Source(str(place / f"test.{suffix}")), "train")) == ROWS[:5]


def test_tables_of_one_folder_that_are_divided_by_two_characters(tmp_path: Path) -> None:
    place = tables(tmp_path / "tables", ",", "csv")
    Dataset.from_list(ROWS).to_csv(str(place / "test.csv"), sep=";", index=False)
    words = r"columns of test\.csv are divided by ';', those of train\.csv by ','; expected tables of one kind"
    with pytest.raises(InputError, match=words):
        load(Source(str(place)), None)


def test_other_data_are_divided_by_nothing(tmp_path: Path) -> None:
    """Tables beside images or other kinds of files are left to the library."""
    place = tables(tmp_path / "tables", ";", "csv")
    (place / "more.jsonl").write_text("{}")
    assert separator(place) is None
    assert separator(place / "more.jsonl") is None
