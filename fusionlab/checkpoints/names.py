"""Short names of checkpoints, for tables and plots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fusionlab.errors import InputError
from fusionlab.paths import expanded


def short_names(paths: Sequence[str]) -> list[str]:
    """A different short name for each path.

    Raises:
        InputError: the same path twice.
    """
    found = [expanded(path) for path in paths]
    places = [location.resolve() if location.exists() else path for location, path in zip(found, paths, strict=True)]
    if len(set(places)) < len(places):
        raise InputError(f"the same checkpoint is named twice among {', '.join(paths)}; expected different ones")
    parts = [
        # Without the root, so that a name is always a path inside the folder it is put into.
        Path(os.path.abspath(location)).parts[1:] if isinstance(place, Path) else tuple(path.split("/"))
        for location, path, place in zip(found, paths, places, strict=True)
    ]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError(f"the same checkpoint is named twice among {', '.join(paths)}; expected different ones")
