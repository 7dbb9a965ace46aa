"""The measured rate of reading, and the time that follows from it."""

from itertools import count
from pathlib import Path

from fusionlab.commands.check_rate import PIECE, ReadRate, read_rate


def files(folder: Path, *sizes: int) -> list[Path]:
    made = [folder / str(index) for index in range(len(sizes))]
    for file, size in zip(made, sizes, strict=True):
        file.write_bytes(bytes(size))
    return made


def test_all_is_read_where_that_takes_no_second(tmp_path: Path) -> None:
    """By a clock that stands still: every byte once, whatever is left over in the last piece of a file."""
    found = read_rate(files(tmp_path, 5, 0, PIECE + 3), lambda: 0.0)
    assert (found.read, found.whole) == (PIECE + 8, PIECE + 8)


def test_a_second_is_enough(tmp_path: Path) -> None:
    """By a clock that takes half a second for each look: two pieces, and the time of all by their rate."""
    ticks = count()
    found = read_rate(files(tmp_path, *[1000] * 8), lambda: next(ticks) / 2)
    assert found.read == 2000
    assert found.expected == 8000 / 2000 * found.seconds


def test_a_file_that_several_models_read_counts_for_each(tmp_path: Path) -> None:
    """It is looked at once."""
    one, other = files(tmp_path, 5, 7)
    found = read_rate([one, other, one], lambda: 0.0)
    assert (found.read, found.whole) == (12, 17)


def test_what_is_said() -> None:
    assert "at 2.0 GiB a second" in str(ReadRate(2**30, 0.5, 6 * 2**30))
    assert "takes 3.0 s or more" in str(ReadRate(2**30, 0.5, 6 * 2**30))
    assert str(ReadRate(0, 0.0, 0)) == "There is nothing to read."
