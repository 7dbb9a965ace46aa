"""Runs that start together log into folders of their own."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fusionlab.commands.logs import OwnFolder


def test_each_logger_takes_a_folder(tmp_path: Path) -> None:
    """At once, before anything is logged, and beside folders that others made."""
    (tmp_path / "fit" / "version_4").mkdir(parents=True)
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: Path(OwnFolder(tmp_path, name="fit").log_dir), range(8)))
    assert sorted(folder.name for folder in folders) == [
        *("version_10", "version_11", "version_12"),
        *(f"version_{number}" for number in range(5, 10)),
    ]
    assert all(folder.is_dir() for folder in folders)


def test_a_home_is_spelt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [OwnFolder("~/logs", name="fit").version for _ in range(3)] == [0, 1, 2]
    assert (tmp_path / "logs" / "fit" / "version_2").is_dir()


def test_a_name_that_is_given_stays(tmp_path: Path) -> None:
    assert [OwnFolder(tmp_path, name="fit", version="mine").version for _ in range(2)] == ["mine", "mine"]
