"""`constraints.txt` names a version of everything that the package asks for, within the bounds that it states."""

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.constraints import PLACE, installed, text, wanted

PINNED = {
    canonicalize_name(line.split("==")[0]): line.split("==")[1]
    for line in PLACE.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
}


@pytest.mark.parametrize("line", dict.fromkeys(wanted()))
def test_every_dependency_has_a_version_that_fits(line: str) -> None:
    needed = Requirement(line)
    assert needed.specifier.contains(PINNED[canonicalize_name(needed.name)], prereleases=True)


def test_what_packages_need_is_followed() -> None:
    """Down to the last, each named once, in order; what an extra asks for only with it."""
    found = installed(["pytest>=8", "no-such-package"])
    assert {"pytest", "pluggy", "packaging", "iniconfig"} <= found.keys()
    assert "hypothesis" not in found
    assert list(found) == sorted(found)
    assert text({"a": "1"}).splitlines()[1:] == ["a==1"]
