"""What test examples added to a cell is read back as it was, and never by another one's settings."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fusionlab.errors import InputError
from fusionlab.evaluation.comparison import Measured
from fusionlab.evaluation.contributions import Answers, Contributions
from fusionlab.grid.cells import CellStore, Finished
from fusionlab.grid.design import Cell
from fusionlab.grid.examples import read_examples, write_examples

CELL = Cell(("a", "b/c"), "simple", "paper, no rescale", 3)


def measured(name: str, seed: int) -> Measured:
    """A dense and a sparse metric of 30 examples."""
    values = torch.rand(30, 2, generator=torch.Generator().manual_seed(seed)).numpy()
    counts = csr_array((values > 0.6).astype(np.float32))
    contributions = {"loss": Contributions("mean", values), "matthews": Contributions("matthews", counts)}
    answers = Answers(contributions, {"matthews": 0.0}, is_constant=seed == 1)
    return Measured(CELL.models, CELL.method, CELL.matching, name, "in", answers, CELL.seed)


def plain(one: Measured) -> tuple[object, ...]:
    """Every field and every number, dense or sparse as it is."""
    kept = [
        (metric, found.formula, type(found.values).__name__, np.asarray(found.values @ np.eye(2)).tolist())
        for metric, found in one.answers.contributions.items()
    ]
    answers = (one.answers.chance, one.answers.is_constant, kept)
    return one.models, one.method, one.matching, one.data_set, one.domain, one.seed, answers


def same(found: list[Measured], wanted: list[Measured]) -> bool:
    return [plain(one) for one in found] == [plain(one) for one in wanted]


def test_round_trip(tmp_path: Path) -> None:
    """Names with any signs, several sets."""
    given = [measured("digits", 0), measured("a/b: \N{GREEK SMALL LETTER ALPHA}", 1)]
    assert not same([given[0]], [given[1]])
    write_examples(tmp_path / "cell.npz", given, "f")
    assert same(read_examples(tmp_path / "cell.npz", "f"), given)
    assert [path.name for path in tmp_path.iterdir()] == ["cell.npz"]


def test_other_settings_are_other_examples(tmp_path: Path) -> None:
    """And so is no file."""
    write_examples(tmp_path / "cell.npz", [measured("digits", 0)], "f")
    assert read_examples(tmp_path / "cell.npz", "another") == []
    assert read_examples(tmp_path / "nowhere.npz", "f") == []


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    """Text, a cut archive, an archive of other arrays, one that would run code."""
    path = tmp_path / "cell.npz"
    write_examples(path, [measured("digits", 0)], "f")
    whole = path.read_bytes()
    for wrong in (b"no archive", whole[: len(whole) // 2], b""):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="holds no test examples; expected a file that compare wrote, or none"):
            read_examples(path, "f")
    for arrays in ({"x": np.zeros(3)}, {"about": np.array([object()])}):
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="holds no test examples"):
            read_examples(path, "f")


def test_no_flipped_byte_is_more_than_a_refusal(tmp_path: Path) -> None:
    """Any third byte of the archive: refused in one sentence, or read as it was where the byte says nothing."""
    path, given = tmp_path / "cell.npz", [measured("digits", 0)]
    write_examples(path, given, "f")
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert same(read_examples(path, "f"), given)
        except InputError:
            refused += 1
    assert refused > len(whole) / 6


@pytest.mark.parametrize(
    "change",
    [
        {"0.1.indices": np.array([0, 1, 99], np.int32)},
        {"0.0": np.full((30, 2), "x")},
        {"0.0": np.zeros((30, 3))},
    ],
    ids=["outside", "words", "shape"],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, np.ndarray]) -> None:
    """Indices beyond the columns would be followed to whatever lies there in memory."""
    path = tmp_path / "cell.npz"
    write_examples(path, [measured("digits", 0)], "f")
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    for name, array in change.items():
        arrays[name] = array if array.dtype != np.int32 else np.resize(array, arrays[name].shape)
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="holds no test examples"):
        read_examples(path, "f")


def test_a_formula_that_there_is_not_is_refused(tmp_path: Path) -> None:
    path, wrong = tmp_path / "cell.npz", measured("digits", 0)
    found = wrong.answers.contributions
    found["loss"] = Contributions("nothing", found["loss"].values)
    write_examples(path, [wrong], "f")
    with pytest.raises(InputError, match="holds no test examples"):
        read_examples(path, "f")


def test_they_lie_beside_the_cell(tmp_path: Path) -> None:
    """A cell that is read again does not hold them in memory; one that failed has none."""
    store = CellStore(tmp_path)
    given = [measured("digits", 0)]
    store.write(Finished(CELL, (), measured=tuple(given)), "f")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".npz"]
    assert same(store.examples(CELL, "f"), given)
    found = store.read(CELL, "f")
    assert found is not None
    assert found.measured == ()
    other = Cell(("a", "b"), "simple", "paper", 0)
    store.write(Finished(other, (), error="no"), "f")
    assert store.examples(other, "f") == []
