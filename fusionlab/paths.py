"""Paths as people write them: ``~`` and environment variables are expanded as a shell does."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fusionlab.errors import InputError

# Settings of data that name files.
NAMES_FILES = re.compile("path|file|folder|tokenizer")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def expanded(path: str | Path) -> Path:
    """A path with ``~``, ``~user``, ``$NAME`` and ``${NAME}`` replaced, as the shell does on its own command line.

    Configs and quoted arguments do not pass through a shell. A file whose name begins with ``~`` is written ``./~``.

    Args:
        path: of an input, an output or a config; a hub id is returned as it is.

    Raises:
        InputError: a variable that is not set, a user that does not exist, or a character that no path holds.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise InputError(f"the path {text!r} holds a null character; expected a path without")

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name not in os.environ:
            if os.path.lexists(text):
                return match.group()  # the name of a file that is there
            raise InputError(
                f"the path {text} names the environment variable {name}, which is not set; set it, or write the path "
                f"in full"
            )
        return os.environ[name]

    found = os.path.expanduser(_VARIABLE.sub(value, text))
    if found.startswith("~") and not os.path.lexists(found):
        user = Path(found).parts[0]
        raise InputError(f"the path {text} names the home folder {user}, which is not known; write the path in full")
    # In full where it would be taken for a home folder when it is read again: a Path forgets its "./".
    return Path.cwd() / found if str(Path(found)).startswith("~") else Path(found)


# Places that fusionlab made, and what was given that they stand for.
_stand_ins: dict[str, str] = {}


def stands_for(place: Path, given: Path) -> None:
    """Remember what a place that was made stands for, so that sentences name that.

    Args:
        place: a file or folder that is not the user's.
        given: the one that is.
    """
    _stand_ins[str(place)] = str(given)


def as_given(text: str) -> str:
    """A sentence with what was given in place of what stands for it."""
    for place in sorted(_stand_ins, key=len, reverse=True):
        text = text.replace(place, _stand_ins[place])
    return text
