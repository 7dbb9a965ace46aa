"""How lists of names are written for a reader."""

import pytest

from fusionlab.evaluation.wording import file_name, format_difference, format_value, listing, shown_decimals


def test_a_list_of_names() -> None:
    """Commas, and one word before the last."""
    assert [listing(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("metric", "before", "after", "text"),
    [
        ("accuracy", 0.5, 0.512, "+1.2 points"),
        ("accuracy", 0.5, 0.51, "+1.0 point"),
        ("accuracy", 0.5, 0.4899, "\N{MINUS SIGN}1.0 point"),
        ("accuracy", 0.5, 0.50049, "0.0 points"),
        ("accuracy", 0.50049, 0.5, "0.0 points"),
        ("matthews", 0.596, 0.604, "+0.008"),
        ("perplexity", 153.24, 99.0, "\N{MINUS SIGN}54.2"),
        ("perplexity", 3e7, 1e7, "\N{MINUS SIGN}20000000"),
        ("loss", 1.0, float("nan"), "not a number"),
    ],
)
def test_differences_have_the_digits_of_what_they_are_between(
    metric: str, before: float, after: float, text: str
) -> None:
    """Those of the larger one; fractions in points; never a signed zero."""
    decimals = shown_decimals(metric, before, after)
    assert format_difference(metric, after - before, decimals, unit=True) == text
    if before < 1e6:
        shown = format_value(metric, before)
        assert len(shown.partition(".")[2]) + 2 * (metric == "accuracy") >= decimals


def test_names_of_files_are_no_longer_than_file_systems_take() -> None:
    """What is cut off still tells two of them apart, and no letter is cut in two."""
    assert file_name("line", "my data", "a/b") == "line_my_data_a_b"
    longer, other = (file_name("distance", "ä" * 200, end) for end in ("one", "two"))
    assert longer != other
    assert len(f"{longer}.png".encode()) < 180
    assert longer.startswith("distance_ää")
    assert file_name("x" * 160) == "x" * 160
