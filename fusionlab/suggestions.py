"""Suggestions for a name that does not exist: the nearest of those that do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The names that are nearly the same as another one, the nearest first; none where nothing is near.

    Upper and lower case, and hyphens and underscores, count as the same.

    Args:
        name: that does not exist.
        known: names that do.
        count: how many at most.
    """
    import difflib  # noqa: PLC0415 - only what is wrong needs it

    plain = {_plain(one): one for one in known}
    return [plain[one] for one in difflib.get_close_matches(_plain(name), list(plain), n=count, cutoff=0.65)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest name as the end of a sentence, such as ``, did you mean fuse?``; empty where nothing is near.

    Args:
        name: that does not exist.
        known: names that do.
    """
    found = nearest(name, known)
    return f", did you mean {found[0]}?" if found else ""


def beside(path: Path) -> str:
    """The files and folders that lie beside a path that is not there and are called nearly so, as a sentence's end.

    Args:
        path: with nothing at it.
    """
    try:
        places = {place.name: place for place in path.parent.iterdir()}
    except OSError:
        return ""
    found = [str(places[name]) for name in nearest(path.name, places, count=2)]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
