"""Advice held against what was measured: whether models that were said to lie apart, or close, score so."""

from __future__ import annotations

import math
from statistics import fmean

from fusionlab.evaluation.claims import COSTS, HELPS, SAME
from fusionlab.evaluation.places import Place, places
from fusionlab.evaluation.results import UNMATCHED, Results
from fusionlab.evaluation.wording import listing, merge_label, metric_label


def against_expectation(results: Results, are_apart: bool) -> str | None:
    """A sentence on what was measured of that which the weights alone let one expect.

    Models that share no basis are expected to have a mean near chance as they are: the best unmatched merge counts as
    near it where its score lies nearer to that of the best constant answer than to the end models' mean, perplexities
    by their logarithms. Of models that share a basis matching is expected to change nothing: what counts is the
    interval of the difference that it makes.

    Args:
        results: what was measured.
        are_apart: whether the models were said to share no basis.

    Returns:
        A sentence; None where nothing was measured that the expectation is about.
    """
    scored = [place for place in places(results) if place.merges]
    told = [words for place in scored if (words := _apart(place) if are_apart else _close(results, place))]
    if not told:
        return None
    sides: dict[str, list[str]] = {}
    for _, side, where in told:
        sides.setdefault(side, []).append(where)
    are_borne_out = {is_so for is_so, _, _ in told}
    how = "in part as expected" if len(are_borne_out) > 1 else "as expected" if told[0][0] else "not as expected"
    return f"Measured, {how}: {'; '.join(f'{side} {listing(found)}' for side, found in sides.items())}."


def _apart(place: Place) -> tuple[bool, str, str] | None:
    """True where the best unmatched merge is near chance at a place; which side it is on, and the scores."""
    best = place.best(place.unmatched)
    ends = [end.value for end in place.ends if not end.diverged]
    # Of end models that say nothing themselves no mean can be expected to.
    if best is None or best.chance is None or all(end.weakness or end.diverged for end in place.ends):
        return None
    level = fmean(ends)
    # Perplexities lie as far apart as their losses do.
    scale = math.log if place.metric == "perplexity" else float
    is_near = abs(scale(best.value) - scale(best.chance)) < abs(scale(best.value) - scale(level))
    nearer, farther = ("chance", "the end models") if is_near else ("the end models", "chance")
    several = len(place.unmatched) > 1
    side = f"the {'best ' if several else ''}unmatched merge is nearer to {nearer} than to {farther}"
    by = f" by {merge_label(best.entry.method)}" if several else ""
    scores = f"{place.show(best.value)} {metric_label(place.metric)}{by}"
    known = f"chance {place.show(best.chance)}, end models {place.show(level)}"
    return is_near, side, f"{place.where} with {scores} ({known})"


def _close(results: Results, place: Place) -> tuple[bool, str, str] | None:
    """True where matching changes no score at a place, of the merge that is kept where it was compared; in words."""
    claims = {key: claim for key, claim in place.claims.items() if key[1] != UNMATCHED}
    key = results.kept if results.kept in claims else next(iter(claims), None)
    if key is None or claims[key].effect not in (HELPS, COSTS, SAME):
        return None
    of = f" of {merge_label(key[0])}" if len({method for method, _ in claims}) > 1 else ""
    claim, name = claims[key], f"matching by {key[1]}{of}"
    if claim.effect == SAME:
        return True, f"{name} makes no difference that {claim.units} show", place.where
    return False, f"{name} {claim.effect}", f"{place.where} by {claim.difference} ({claim.interval})"
