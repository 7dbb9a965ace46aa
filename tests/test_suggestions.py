"""The nearest of the names that there are."""

import pytest

from fusionlab.suggestions import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fuze", ["fuse"]), ("MERGE", ["merge"]), ("out-of_domain", ["out_of_domain"]), ("nothing alike", [])],
)
def test_the_nearest(name: str, expected: list[str]) -> None:
    assert nearest(name, ["fuse", "merge", "out_of_domain", "match"]) == expected


def test_the_end_of_a_sentence() -> None:
    assert did_you_mean("simpel", ["simple", "slerp"]) == ", did you mean simple?"
    assert did_you_mean("xyz", ["simple", "slerp"]) == ""
