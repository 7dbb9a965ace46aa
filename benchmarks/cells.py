"""What was measured, by name, in a file of JSON that a command goes on with where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fusionlab.atomic import atomic_file


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
