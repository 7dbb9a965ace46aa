"""Matched twins of a fusion of files, as they lie in its unfinished output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fusionlab.commands.match_output import alignment_file
from fusionlab.commands.match_stream import Twins
from fusionlab.streaming import StoredModel, open_folder
from fusionlab.streaming.moving import StoredTwin
from fusionlab.symmetry import Alignment


def in_one_basis(models: Mapping[str, StoredModel], twins: Twins | None, folder: Path) -> dict[str, StoredModel]:
    """All models in one basis: the twins of those that were moved, the others as they are.

    Args:
        models: end models, and the base if there is one, by name.
        twins: that were made; None where nothing was matched.
        folder: of all twins.
    """
    found = dict(models)
    for label in () if twins is None else twins.moved:
        assert twins is not None
        twin = open_folder(label, twins.place(label, folder))
        assert twin is not None
        found[label] = twin
    return found


def moved_by(
    models: Sequence[StoredModel], matched: Mapping[str, StoredModel], twins: Twins | None, folder: Path
) -> list[StoredTwin | None]:
    """The twin of each end model that was moved, with the alignment that moved it, mapped from its file.

    Args:
        models: end models in order, with the names of the first.
        matched: those in one basis, with these names too, by the names that they are called by.
        twins: that were made.
        folder: of all twins.
    """
    found = list[StoredTwin | None]()
    for model, (label, twin) in zip(models, matched.items(), strict=True):
        if twins is None or label not in twins.moved:
            found.append(None)
            continue
        file = alignment_file(twins.place(label, folder), len(twins.moved) == 1)
        found.append(StoredTwin(model, twin, Alignment.load(file, twins.described.parts[0])))
    return found
