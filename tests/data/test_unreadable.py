"""Files that no library can read: the file is named, and what is wrong with it in plain words."""

from pathlib import Path

import pytest

from fusionlab.data.tables import Source, load
from fusionlab.data.unreadable import fault
from fusionlab.errors import InputError

HEAD = "text,label\n"
GOOD = HEAD + "fine,0\nbad,1\n"
BROKEN = [
    (b"", "is empty; expected at least one row"),
    (b"\n\n", "is empty; expected at least one row"),
    (HEAD.encode(), "holds names of columns and no row; expected at least one"),
    ((GOOD + "café,1\n").encode("latin-1"), ": line 4 is not UTF-8 text; expected the file saved as UTF-8"),
    (
        f'{HEAD}"two\nlines",1\n"open,1\nb,2\n'.encode(),
        ": a quote opens in line 4 and is never closed; expected one at",
    ),
    (f"{GOOD}one, two, three,1\n".encode(), ": line 4 has 4 cells; expected 2, and quotes around text with ','"),
]


def sentence_of(place: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(Source(str(place)), None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("content", "words"), BROKEN)
def test_one_table(tmp_path: Path, content: bytes, words: str) -> None:
    """The whole sentence is of this project, and begins with the file."""
    file = tmp_path / "reviews.csv"
    file.write_bytes(content)
    assert sentence_of(file).startswith(f"{file}{words if words.startswith(':') else f' {words}'}")


@pytest.mark.parametrize(("content", "words"), BROKEN[:-1])
def test_one_table_of_a_folder(tmp_path: Path, content: bytes, words: str) -> None:
    """The one that is at fault is named, not the folder, nor an empty file that is no table."""
    place = tmp_path / "tables"
    place.mkdir()
    (place / "_SUCCESS").touch()
    (place / "train.csv").write_text(GOOD)
    (place / "test.csv").write_bytes(content)
    found = sentence_of(place)
    assert found.startswith(str(place / "test.csv"))
    assert words in found


def test_files_of_other_kinds(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.parquet", "a.txt"):
        (tmp_path / name).touch()
        assert sentence_of(tmp_path / name) == f"{tmp_path / name} is empty; expected at least one row"
    (tmp_path / "rows.json").write_text("[]")
    assert sentence_of(tmp_path / "rows.json") == f"{tmp_path / 'rows.json'} holds no row; expected at least one"


def test_a_quote_in_a_long_text(tmp_path: Path) -> None:
    """Longer than the csv module reads by itself; what it reads otherwise stays as it was."""
    file = tmp_path / "long.csv"
    file.write_text(f'{GOOD}"{"x " * 100_000},1\n')
    assert "a quote opens in line 4" in sentence_of(file)


def test_other_reasons_are_left_to_the_library(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(GOOD)
    files = [tmp_path / "good.csv"]
    for reason in ("out of luck", "EOF inside string starting at row 1", "'utf-8' codec can't decode", "StopIteration"):
        assert fault(files, reason) is None
