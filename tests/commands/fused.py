"""What `fusionlab fuse` wrote, as tests look at it."""

import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def rows(output: Path) -> Rows:
    return json.loads((output / "results.json").read_text())


def value(found: Rows, **wanted: Any) -> float:
    """The value of the one row with these fields."""
    (row,) = [row for row in found if all(row[name] == given for name, given in wanted.items())]
    return row["value"]
