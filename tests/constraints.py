"""The versions that were tested, of everything that fusionlab needs and of what those packages need.

``python -m tests.constraints`` is ``make constraints``: it writes ``constraints.txt`` from the environment it runs in.
"""

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "constraints.txt"
# Of fusionlab; packages of the other extras are of no test.
EXTRAS = ("dev", "docs")


def wanted() -> list[str]:
    """All that ``pyproject.toml`` asks for, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]


def installed(lines: Iterable[str]) -> dict[str, str]:
    """The versions of some packages and all below them, by name, without what tells builds of one version apart.

    Args:
        lines: requirements, such as ``peft>=0.21``.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    given = [Requirement(line) for line in lines]
    left = [(canonicalize_name(needed.name), extra) for needed in given for extra in ("", *needed.extras)]
    while left:
        package, extra = left.pop()
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        try:
            told = distribution(package)
        except PackageNotFoundError:
            # Of another platform, or of an extra that is not installed.
            continue
        found[package] = Version(told.version).public
        for line in told.requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(needed.name), one) for one in ("", *needed.extras)]
    return dict(sorted(found.items()))


def text(versions: dict[str, str]) -> str:
    """The file.

    Args:
        versions: by name.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    head = f"# The newest set that was tested, with Python {python}; written by make constraints.\n"
    return head + "".join(f"{name}=={version}\n" for name, version in versions.items())


if __name__ == "__main__":
    PLACE.write_text(text(installed(wanted())), encoding="utf-8")
    print(f"{PLACE.name}: {len(PLACE.read_text(encoding='utf-8').splitlines()) - 1} packages")
