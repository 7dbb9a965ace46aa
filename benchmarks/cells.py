"""What was measured, by name, in a file of JSON that a command goes on with where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy

from fusionlab.atomic import atomic_file

ROUNDING = 1e-6


class Cells:
    """What was measured, by name, in a file that is rewritten after each.

    Attributes:
        found: the cells.

    Args:
        file: of JSON; none is no cells.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def keep(self, name: str, values: dict[str, Any]) -> None:
        """Write a cell."""
        self.found[name] = values
        self._write()

    def begin(self, prefix: str, reached: dict[str, list[Any]]) -> None:
        """Write what end models reach, in the cell ``ends`` behind a prefix.

        Where other models were measured there, all cells with the prefix are dropped, to be measured with these.

        Args:
            prefix: of the names of all cells about these models.
            reached: by them.
        """
        name = f"{prefix}ends"
        if not alike(self.found.get(name), reached):
            self.drop(prefix)
            self.keep(name, reached)

    def drop(self, prefix: str) -> None:
        """Take out the cells whose names begin so."""
        self.found = {name: values for name, values in self.found.items() if not name.startswith(prefix)}
        self._write()

    def _write(self) -> None:
        with atomic_file(self.file, overwrite=True) as temporary:
            lines = (
                f"{json.dumps(key)}: {json.dumps(cell, sort_keys=True)}" for key, cell in sorted(self.found.items())
            )
            temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def alike(measured: dict[str, list[Any]] | None, found: dict[str, list[Any]]) -> bool:
    """True for the same scores but for rounding: those of the same models."""
    return measured is not None and all(
        numpy.allclose(measured[key], scores, rtol=0, atol=ROUNDING) for key, scores in found.items()
    )
