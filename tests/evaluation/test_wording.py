"""How lists of names are written for a reader."""

from fusionlab.evaluation.wording import listing


def test_a_list_of_names() -> None:
    """Commas, and one word before the last."""
    assert [listing(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
