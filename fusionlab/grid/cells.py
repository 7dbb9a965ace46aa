"""Finished cells on disk: each written once, whole, and read again by the next start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fusionlab.atomic import atomic_file
from fusionlab.errors import InputError
from fusionlab.evaluation.comparison import Measured
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import Curve, Row
from fusionlab.evaluation.wording import file_name
from fusionlab.grid.design import Cell
from fusionlab.grid.examples import read_examples, write_examples
from fusionlab.grid.fingerprints import digest


@dataclass(frozen=True)
class Finished:
    """The results of a cell.

    Attributes:
        cell: which one.
        rows: its scores.
        curves: lines between the models of a pair, in this cell's matching.
        distances: to the anchor, before and after this cell's matching.
        seconds: wall time, evaluation included.
        error: one sentence where it failed; it is tried again by the next start.
        missing: test sets that it was not measured on as they could not be had, with the reason.
        note: a sentence about the models that were merged; empty where there is nothing to say.
        told: what the merge method told, a sentence each, such as which models ``soup`` kept.
        measured: what each test example added, on the way to the disk; finished cells are read without it.
    """

    cell: Cell
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...] = ()
    distances: tuple[Distance, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    told: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = field(default=(), compare=False, repr=False)


class CellStore:
    """A folder with one JSON file for each finished cell, and a file of its test examples beside it.

    Args:
        folder: made when the first cell is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def write(self, finished: Finished, fingerprint: str) -> None:
        """Keep a cell; a process that is killed leaves whole files only."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if finished.measured:
            write_examples(self._path(finished.cell, ".npz"), finished.measured, fingerprint)
        values = asdict(replace(finished, measured=()))
        del values["measured"]
        text = json.dumps({"fingerprint": fingerprint, **values}, indent=1) + "\n"
        # Last, as it is what says that the cell is finished.
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
            # Cells of older releases have neither.
            said = found.get("note", ""), tuple(found.get("told", ()))
            finished = Finished(cell, rows, curves, distances, found["seconds"], None, dict(found["missing"]), *said)
            if not all(_fits(part) for part in (finished, *rows, *curves, *distances)):
                raise TypeError("a value of another type")
            return finished
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is no cell of a grid; expected a file that compare wrote, or none") from error

    def examples(self, cell: Cell, fingerprint: str) -> list[Measured]:
        """The part of each test example in a finished cell's scores; nothing of one that was made before that was kept.

        Raises:
            InputError: a file of something else.
        """
        return read_examples(self._path(cell, ".npz"), fingerprint)

    def _path(self, cell: Cell, suffix: str = ".json") -> Path:
        words = file_name(f"seed {cell.seed}", "+".join(cell.models), cell.method, cell.matching)
        # Names that differ only in signs that no file name holds, or that are too long for one, are told apart.
        return self.folder / f"{words[:150]}_{digest(asdict(cell), 6)}{suffix}"


def _curve(values: dict[str, Any]) -> Curve:
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return Curve(**fields)


def _fits(made: Any) -> bool:
    """True if the fields of a dataclass that was made from JSON are of their types."""
    return all(_is_a(getattr(made, name), kind) for name, kind in get_type_hints(type(made)).items())


def _is_a(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_a(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(part, parts[0]) for part in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_is_a(part, parts[1]) for part in value.values())
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind)
