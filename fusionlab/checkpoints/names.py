"""Short names of checkpoints, for tables, plots and files: what tells their paths apart."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from fusionlab.errors import InputError
from fusionlab.paths import expanded

_FILE = ".ckpt"
# Parts of paths that trainers write, which say nothing of the model; the less they say, the earlier they are left out.
_OF_A_FILE = r"checkpoints?|checkpoint-\d+|((epoch|step|last|best|model)[\w.=-]*)\.ckpt|epoch=[\w.=-]*|last|best"
_OF_A_RUN = r"(version_\d+|merged|model|final|output|weights|export(ed)?|lightning_logs|logs?)(\.ckpt)?"
_LEVELS = [re.compile(f"{_OF_A_FILE}|{_OF_A_RUN}"), re.compile(_OF_A_FILE), re.compile(r"(?!)")]


def short_names(paths: Sequence[str], names: Sequence[str] | None = None) -> list[str]:
    """A different short name for each path.

    The last part of each path is taken, and more of it where those agree. Parts that trainers write
    (``version_0/checkpoints/epoch=0-step=94.ckpt``) are left out, as far as names differ without them.

    Args:
        paths: of checkpoints, or hub ids.
        names: to be taken in place of those, one for each path.

    Raises:
        InputError: the same path twice, or names that are not one for each, that are the same or no names of files.
    """
    found = [expanded(path) for path in paths]
    places = [location.resolve() if location.exists() else path for location, path in zip(found, paths, strict=True)]
    if len(set(places)) < len(places):
        raise InputError(f"the same checkpoint is named twice among {', '.join(paths)}; expected different ones")
    if names is not None:
        return _checked(names, paths)
    parts = [
        # Without the root, so that a name is always a path inside the folder it is put into.
        Path(os.path.abspath(location)).parts[1:] if isinstance(place, Path) else tuple(path.split("/"))
        for location, path, place in zip(found, paths, places, strict=True)
    ]
    # What all paths begin with tells none apart, and may be no more than where the command was called.
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False)))
    parts = [path[min(common, len(path) - 1) :] for path in parts] if len(parts) > 1 else parts
    for without in _LEVELS:
        telling = [[part for part in path if not without.fullmatch(part)] for path in parts]
        for length in range(1, max(map(len, telling), default=0) + 1):
            short = ["/".join(part[-length:]).removesuffix(_FILE) for part in telling]
            if len(set(short)) == len(short) and all(short):
                return short
    # A file beside a folder of its name.
    return ["/".join(part) for part in parts]


def _checked(names: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Names that were given, where they can be those of the models and of files."""
    if len(names) != len(paths):
        raise InputError(f"names has {len(names)} names for {len(paths)} models; expected one for each")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise InputError(f"names has {twice[0]!r} twice; expected different ones")
    for name in names:
        if not name.strip() or "\0" in name or name.startswith(".") or "/" in name or "\\" in name:
            raise InputError(f"names has {name!r}; expected names without slashes that begin with no dot")
    return list(names)
