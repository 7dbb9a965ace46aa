"""The folders that every machine has to see where several make the cells of a grid."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusionlab.atomic import atomic_file, try_to_write
from fusionlab.errors import InputError

# By this file, written by the machine that starts a grid, another one shows that it sees the same folder.
MARK = ".seen-by-all"


@dataclass(frozen=True)
class Shared:
    """Two folders that every machine has to see.

    Attributes:
        folder: of the grid, absolute.
        working: the working folder, by which relative paths of checkpoints and data are read.
        token: the text of `MARK` in the folder.
    """

    folder: Path
    working: Path
    token: str

    def look(self) -> None:
        """Go to the working folder on this machine, and try to write into the grid's.

        Raises:
            InputError: it is another folder than that of the machine that started the grid, or not there.
        """
        try:
            os.chdir(self.working)
            token = (self.folder / MARK).read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(self._unseen(str(error.filename))) from error
        if token != self.token:
            raise InputError(self._unseen(str(self.folder)))
        try_to_write(self.folder / "cells")

    def _unseen(self, path: str) -> str:
        return (
            f"{path} is not what the machine sees there that started the grid; expected the folder of the grid and the "
            f"working folder on a file system that all nodes share"
        )


@contextmanager
def marked(folder: Path) -> Iterator[Shared]:
    """A folder that other machines can tell from another one of its name, as long as the block lasts.

    Args:
        folder: of a grid; made if it is missing.
    """
    shared = Shared(folder.resolve(), Path.cwd(), secrets.token_hex(8))
    shared.folder.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_file(shared.folder / MARK, overwrite=True) as temporary:
            temporary.write_text(shared.token, encoding="utf-8")
        yield shared
    finally:
        (shared.folder / MARK).unlink(missing_ok=True)
