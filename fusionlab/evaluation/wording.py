"""Names of metrics and matchings, and numbers, as people read them."""

import hashlib
import math
import re
from collections.abc import Sequence

from fusionlab.evaluation.metrics import DISTANCES, is_fraction

# Bytes of a name; file systems take 255, endings and what atomic writing puts before it included.
_LONGEST = 160


def metric_label(metric: str) -> str:
    """A metric's name in words: ``"macro_f1"`` is ``"macro F1"``."""
    return " ".join(word.upper() if word == "f1" else word for word in metric.split("_"))


def metric_heading(metric: str) -> str:
    """A metric's name with its unit, for an axis or the head of a column."""
    return f"{metric_label(metric)} (%)" if is_fraction(metric) else metric_label(metric)


def format_value(metric: str, value: float | None, unit: bool = False) -> str:
    """A metric's value for a reader: fractions in percent with one decimal, everything else with three.

    Args:
        metric: decides how the number is shown.
        value: None is shown as a dash.
        unit: whether to write the percent sign.
    """
    if value is None:
        return "\N{EN DASH}"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if is_fraction(metric):
        return f"{100 * value:.1f} %" if unit else f"{100 * value:.1f}"
    if metric in DISTANCES:
        return f"{value:#.4g}".rstrip(".")
    # Past a hundred, three decimals are noise: perplexities and distances there are read to four digits.
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 1e6 else f"{value:.3g}"


def shown_decimals(metric: str, *values: float) -> int:
    """The number of decimals to which all of some values are shown; a percentage has two more than it shows.

    Args:
        metric: decides how the numbers are shown.
        values: those to be compared; the one that is shown with fewest decimals counts.
    """
    if is_fraction(metric):
        return 3
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 3 if largest < 100 else 1 if largest < 1e6 else 0


def format_difference(metric: str, difference: float, decimals: int, unit: bool = False, sign: bool = True) -> str:
    """A difference of two values of a metric for a reader; of fractions it is in percentage points.

    Args:
        metric: decides how the number is shown.
        difference: the number.
        decimals: of the number itself, see `shown_decimals`.
        unit: whether to write "points" after the difference of two percentages.
        sign: whether a positive difference has a plus sign; a negative one always has its minus sign.
    """
    if not math.isfinite(difference):
        return format_value(metric, difference)
    places = decimals - 2 if is_fraction(metric) else decimals
    shown = shown_difference(metric, difference, decimals)
    text = f"{shown:{'+' if sign and shown else ''}.{places}f}"
    points = " point" if abs(shown) == 1 else " points"
    return text.replace("-", "\N{MINUS SIGN}") + (points if unit and is_fraction(metric) else "")


def shown_difference(metric: str, difference: float, decimals: int) -> float:
    """The very number that `format_difference` shows; never -0."""
    scale, places = (100, decimals - 2) if is_fraction(metric) else (1, decimals)
    return float(f"{scale * difference:.{places}f}") + 0.0


def format_change(before: float, after: float) -> str:
    """A change in percent of what was before, with its sign; small changes keep two decimals."""
    if not (math.isfinite(before) and math.isfinite(after)) or before == 0:
        return "\N{EN DASH}"
    change = 100 * (after - before) / before
    text = f"{change:+.2f}" if abs(change) < 1 else f"{change:+.1f}"
    return ("0.00" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")) + " %"


def matching_label(matching: str) -> str:
    """A matching's name for a reader: ``"none"`` is ``"unmatched"``."""
    return "unmatched" if matching == "none" else matching


def gauge_label(matchings: Sequence[str]) -> str:
    """The name of unmatched models in the gauge of some matchings: ``"unmatched, in the gauge of weights"``."""
    return f"unmatched, in the gauge of {listing(list(matchings))}"


def merge_label(method: str) -> str:
    """A merge method as the verdict names it: ``"simple"`` is plain averaging, others are set in backticks."""
    return "plain averaging" if method == "simple" else f"`{method}`"


def merge_name(method: str, matching: str) -> str:
    """A merge's name in a sentence: ``plain averaging unmatched``, ```ties` matched by `learned```."""
    return f"{merge_label(method)} {'unmatched' if matching == 'none' else f'matched by `{matching}`'}"


def domain_label(domain: str | None) -> str:
    """``"in"`` is ``"in domain"``; nothing for no domain."""
    return {"in": "in domain", "out": "out of domain"}.get(domain or "", "")


def place_label(data_set: str | None, domain: str | None) -> str:
    """A data set with its domain in brackets; the brackets are never broken over two lines."""
    bracket = f" ({domain_label(domain)})".replace(" ", "\N{NO-BREAK SPACE}") if domain else ""
    return f"{data_set or 'all data'} {bracket.strip()}".strip()


def models_label(models: tuple[str, ...], all_models: tuple[str, ...]) -> str:
    """Names of the models of a merge; more than two that are all there are become ``"all 4 models"``."""
    if len(models) > 2 and set(models) == set(all_models):
        return f"all {len(models)} models"
    return " + ".join(models)


def listing(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; at least one name."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def file_name(*parts: str) -> str:
    """A name that is safe on every file system, for a figure or a folder that belongs to `parts`.

    A long one ends in a digest of all of it in place of what is cut off.
    """
    name = "_".join(re.sub(r"[^\w.+-]+", "_", part).strip("_.") or "_" for part in parts)
    whole = name.encode()
    if len(whole) <= _LONGEST:
        return name
    return f"{whole[:_LONGEST].decode(errors='ignore')}_{hashlib.blake2b(whole, digest_size=4).hexdigest()}"
