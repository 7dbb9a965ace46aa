"""Advice held against what was measured: whether models that were said to lie apart, or close, score so."""

from __future__ import annotations

from statistics import fmean

from fusionlab.evaluation.claims import COSTS, HELPS, SAME
from fusionlab.evaluation.places import Place, places
from fusionlab.evaluation.results import UNMATCHED, Results
from fusionlab.evaluation.wording import listing, metric_label


def against_expectation(results: Results, are_apart: bool) -> str | None:
    """A sentence on what was measured of that which the weights alone let one expect.

    Models that share no basis are expected to have a mean near chance as they are: the best unmatched merge counts as
    near it where its score lies nearer to that of the best constant answer than to the end models' mean. Of models that
    share a basis matching is expected to change nothing: what counts is the interval of the difference that it makes.

    Args:
        results: what was measured.
        are_apart: whether the models were said to share no basis.

    Returns:
        A sentence; None where nothing was measured that the expectation is about.
    """
    found = [place for place in places(results) if place.merges]
    told = [words for place in found if (words := _apart(place) if are_apart else _close(results, place))]
    if not told:
        return None
    are_borne_out = {is_so for is_so, _ in told}
    how = "in part as expected" if len(are_borne_out) > 1 else "as expected" if told[0][0] else "not as expected"
    return f"Measured, {how}: {listing([words for _, words in told])}."


def _apart(place: Place) -> tuple[bool, str] | None:
    """True where the best unmatched merge is near chance at a place, and the scores in words."""
    best = place.best(place.unmatched)
    ends = [end.value for end in place.ends if not end.diverged]
    if best is None or not ends or best.chance is None:
        return None
    chance, level = best.chance, fmean(ends)
    is_near = abs(best.value - chance) < abs(best.value - level)
    sides = (f"chance ({place.show(chance)})", f"the end models ({place.show(level)})")
    nearer, farther = sides if is_near else sides[::-1]
    return is_near, (
        f"the unmatched merge has {place.show(best.value)} {metric_label(place.metric)} {place.where}, nearer to "
        f"{nearer} than to {farther}"
    )


def _close(results: Results, place: Place) -> tuple[bool, str] | None:
    """True where matching changes no score at a place, of the merge that is kept where it was compared; in words."""
    claims = {key: claim for key, claim in place.claims.items() if key[1] != UNMATCHED}
    key = results.kept if results.kept in claims else next(iter(claims), None)
    if key is None or claims[key].effect not in (HELPS, COSTS, SAME):
        return None
    claim = claims[key]
    if claim.effect == SAME:
        return True, f"matching by {key[1]} makes no difference that {claim.units} show {place.where}"
    return False, f"matching by {key[1]} {claim.effect} {place.where}: {claim.difference} ({claim.interval})"
