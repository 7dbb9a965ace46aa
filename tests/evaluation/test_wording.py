"""How lists of names are written for a reader."""

import pytest

from fusionlab.evaluation.wording import format_difference, format_value, listing, shown_decimals


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
