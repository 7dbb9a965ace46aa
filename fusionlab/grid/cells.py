"""Finished cells on disk: each written once, whole, and read again by the next start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fusionlab.atomic import atomic_file
from fusionlab.errors import InputError
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import Curve, Row
from fusionlab.evaluation.wording import file_name
from fusionlab.grid.design import Cell, digest


@dataclass(frozen=True)
class Finished:
    """What a cell gave.

    Attributes:
        cell: which one.
        rows: its scores.
        curves: lines between the models of a pair, in this cell's matching.
        distances: to the anchor, before and after this cell's matching.
        seconds: wall time, evaluation included.
        error: one sentence where it failed; it is tried again by the next start.
        missing: test sets that it was not measured on as they could not be had, with the reason.
    """

    cell: Cell
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...] = ()
    distances: tuple[Distance, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


class CellStore:
    """A folder with one JSON file for each finished cell.

    Args:
        folder: made when the first cell is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def write(self, finished: Finished, fingerprint: str) -> None:
        """Keep a cell; a process that is killed leaves whole files only."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"fingerprint": fingerprint, **asdict(finished)}, indent=1) + "\n"
        with atomic_file(self._path(finished.cell), overwrite=True) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read(self, cell: Cell, fingerprint: str) -> Finished | None:
        """A finished cell; None where it was not made, failed, or was made with other settings.

        Raises:
            InputError: a file that is no cell.
        """
        path = self._path(cell)
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["fingerprint"] != fingerprint or found["error"] is not None:
                return None
            rows = tuple(Row(**row | {"models": tuple(row["models"])}) for row in found["rows"])
            curves = tuple(_curve(curve) for curve in found["curves"])
            distances = tuple(Distance(**distance) for distance in found["distances"])
            return Finished(cell, rows, curves, distances, found["seconds"], None, dict(found["missing"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no cell of a grid; expected a file that compare wrote, or none") from error

    def _path(self, cell: Cell) -> Path:
        words = file_name(f"seed {cell.seed}", "+".join(cell.models), cell.method, cell.matching)
        # Names that differ only in signs that no file name holds, or that are too long for one, are told apart.
        return self.folder / f"{words[:150]}_{digest(asdict(cell), 6)}.json"


def _curve(values: dict[str, Any]) -> Curve:
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return Curve(**fields)
