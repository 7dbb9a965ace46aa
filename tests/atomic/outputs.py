"""Outputs that tests write."""

from pathlib import Path

from fusionlab.atomic import atomic_folder


def write(path: Path, text: str, overwrite: bool = True) -> None:
    """A folder with one file in it."""
    with atomic_folder(path, overwrite) as folder:
        (folder / "x").write_text(text)
