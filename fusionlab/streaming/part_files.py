"""Alignments of parts of models that are matched, kept in an unfinished output for a call that goes on with it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fusionlab.streaming.resuming import Manifest
from fusionlab.symmetry import Alignment, Blueprint

# What holds these files in an output until it is complete; no twin that lies beside it is called so.
PARTS = ".fusionlab-parts"


class PartFiles:
    """Alignments and distances of the parts of one pair, in files that the manifest knows.

    Args:
        manifest: of the output.
        name: of the pair.
    """

    def __init__(self, manifest: Manifest, name: str) -> None:
        self.manifest, self.name = manifest, name
        (manifest.folder / PARTS / name).mkdir(parents=True, exist_ok=True)

    def get(self, index: int, blueprint: Blueprint) -> tuple[list[Alignment], list[float]] | None:
        """The alignments and squared distances of a part; None where an earlier call did not come that far.

        Args:
            index: of the part.
            blueprint: of it.
        """
        found = []
        for side in range(2):
            if (file := self._file(index, side)) not in self.manifest.finished:
                return None
            found.append(Alignment.load(self.manifest.folder / file, blueprint))
        return found, list(self.manifest.finished[self._file(index, 0)])

    def put(self, index: int, alignments: Sequence[Alignment], squares: Sequence[float]) -> None:
        """Keep what was found of a part, before anything of it counts as written."""
        for side, alignment in enumerate(alignments):
            alignment.save(self.manifest.folder / self._file(index, side))
            self.manifest.add(self._file(index, side), list(squares))

    def _file(self, index: int, side: int) -> str:
        return f"{PARTS}/{self.name}/{index}-{side}.safetensors"


def remove_parts(folder: Path) -> None:
    """Remove all such files from an output that is complete otherwise."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)
