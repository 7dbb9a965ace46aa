"""An output appears complete or not at all."""

from pathlib import Path

import pytest

from fusionlab.atomic import atomic_file, atomic_folder, refuse_existing
from fusionlab.errors import InputError


def test_folder_appears_only_when_complete(tmp_path: Path) -> None:
    """Inside the block the target does not exist; afterwards nothing else does."""
    with atomic_folder(tmp_path / "deep" / "out") as folder:
        (folder / "x").write_text("1")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_failure_leaves_the_old_output(tmp_path: Path, atomic) -> None:  # type: ignore[no-untyped-def]
    """An error inside the block keeps what was there before."""
    (tmp_path / "out").write_text("old")
    with pytest.raises(RuntimeError), atomic(tmp_path / "out", overwrite=True):
        raise RuntimeError
    assert (tmp_path / "out").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_output_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Two runs with one output: the second to finish is refused."""
    with pytest.raises(InputError, match="exists already"), atomic_folder(tmp_path / "out"):
        (tmp_path / "out").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_working_folder_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with overwrite."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    for target in (".", "..", str(tmp_path)):
        with pytest.raises(InputError, match="working folder"):
            refuse_existing(target, overwrite=True)
