"""The standing of a merge among its end models: the headline where nothing was compared unmatched, the best merge."""

from collections.abc import Sequence

from fusionlab.evaluation.claims import COSTS, DIVERGED, HELPS, OPEN, SAME, Claim, Effect
from fusionlab.evaluation.comparison import Comparison
from fusionlab.evaluation.places import Place, Scored
from fusionlab.evaluation.wording import listing, metric_label

# So many places are named; of more it is told how many there are.
_MANY = 5
_BETTER: dict[Effect, str] = {
    HELPS: "is better than the best end model {}",
    COSTS: "is worse than the best end model {}",
    SAME: "does not differ from the best end model, as far as the examples show, {}",
    OPEN: "cannot be judged {} without an interval",
    DIVERGED: "cannot be judged {}, as it or every end model has no score there",
}


def against_ends(places: Sequence[Place], kept: tuple[str, str] | None = None) -> str:
    """The headline on one merge and the best end model, and the mean of the end models, with intervals.

    "Better" and "worse" are said where the 95 % interval of the difference over test examples does not hold 0.

    Args:
        places: at least one, each with merges.
        kept: method and matching of the merge to speak of; the best one if None, or where it was not measured.
    """
    if len(places) == 1:
        return against_ends_at(places[0], kept)
    effects: dict[Effect, list[str]] = {}
    for place in places:
        claim = _claim(place, _spoken_of(place, kept))
        effects.setdefault(DIVERGED if claim is None else claim.effect, []).append(place.where)
    where = {
        effect: listing(found) if len(places) <= _MANY else f"in {len(found)} of {len(places)} measurements"
        for effect, found in effects.items()
    }
    short = "; it ".join(text.format(where[effect]) for effect, text in _BETTER.items() if effect in where)
    return f"{_subject(places, kept)} {short}."


def against_ends_at(place: Place, kept: tuple[str, str] | None = None, with_opening: bool = True) -> str:
    """The scores at one place, the difference, and how sure it is.

    Args:
        place: with merges.
        kept: the merge to speak of, see `against_ends`.
        with_opening: whether to begin with what the interval says.
    """
    merge, end = _spoken_of(place, kept), place.best(place.ends)
    claim, subject = _claim(place, merge), _subject([place], kept)
    if merge is None:
        return f"No merge has a score {place.where}: {'each one' if len(place.merges) > 1 else 'it'} diverges."
    if merge.diverged:
        opening = f"{subject}, {merge.called}," if with_opening else f"{merge.called[0].upper()}{merge.called[1:]}"
        return f"{opening} diverges {place.where}: {merge.diverged}."
    has = f"{merge.called} has {place.show(merge.value)} {metric_label(place.metric)} {place.where}"
    weak = f"; the merge {merge.weakness}" if merge.weakness else ""
    if end is None or claim is None:
        return f"{has[0].upper()}{has[1:]}{weak}; no end model has a score to compare it with."
    kind = "best end model" if len(place.ends) > 1 else "end model"
    sure = {
        SAME: f"; {claim.allowed()}" if claim.effect == SAME else "",
        OPEN: f" ({claim.interval})",
    }.get(claim.effect, f", {claim.difference} ({claim.interval})")
    scores = f"{has}, the {kind}, `{end.entry.name}`, {place.show(end.value)}{sure}{_mean(place, merge)}{weak}."
    opening = {
        OPEN: f"Whether {subject[0].lower()}{subject[1:]} differs from the {kind} is open",
        SAME: f"{subject} does not differ from the {kind} as far as {claim.units} show",
        HELPS: f"{subject} is better than the {kind}",
    }.get(claim.effect, f"{subject} is worse than the {kind}")
    return f"{opening}: {scores}" if with_opening else f"{scores[0].upper()}{scores[1:]}"


def best_merge(place: Place) -> list[str]:
    """A sentence on the best merge of a place, and how it stands to the best end model; none where none has a score."""
    best, end, claim = place.best(place.merges), place.best(place.ends), _claim(place, place.best(place.merges))
    if best is None:
        return []
    level = ""
    if end is not None and claim is not None:
        kind = "best end model" if len(place.ends) > 1 else "end model"
        level = f", {place.against(best.value, end.value)} the {kind}"
        if claim.effect == SAME:
            # A difference that is within chance is no difference to be told as one.
            level = f"; the examples do not show that it differs from the {kind}, {claim.difference} ({claim.interval})"
    return [f"Best merge: {best.called}, {place.show(best.value)}{level}."]


def _spoken_of(place: Place, kept: tuple[str, str] | None) -> Scored | None:
    """The merge that is kept, where it was measured, else the best one."""
    found = None if kept is None else place.find(*kept)
    return place.best(place.merges) if found is None or len(place.merges) == 1 else found


def _subject(places: Sequence[Place], kept: tuple[str, str] | None) -> str:
    """The merge that is spoken of, told from others where there are any."""
    if all(len(place.merges) == 1 for place in places):
        return "The merge"
    is_kept = kept is not None and all(place.find(*kept) is not None for place in places)
    words = "The merge that is kept" if is_kept else "The best merge"
    if len(places) == 1:  # its scores name it
        return words
    names = {one.called for place in places if (one := _spoken_of(place, kept)) is not None}
    return f"{words}, {names.pop()}," if len(names) == 1 else f"{words} of each measurement"


def _claim(place: Place, merge: Scored | None) -> Claim | None:
    """The gain of a merge over the best end model; None where either has no score."""
    end = place.best(place.ends)
    if merge is None or merge.diverged or end is None:
        return None
    return Claim(_against(place, merge, (end.entry.name,), end.value))


def _mean(place: Place, merge: Scored) -> str:
    """The difference to the mean of all end models; nothing where one is missing, or has no score."""
    values = [one.value for one in place.ends if not one.diverged]
    if len(values) < 2 or len(values) < len(merge.entry.models):
        return ""
    mean = sum(values) / len(values)
    claim = Claim(_against(place, merge, merge.entry.models, mean))
    if claim.effect == DIVERGED:
        return ""
    unsure = "" if claim.effect == OPEN else f", {claim.difference} ({claim.interval})"
    return f"; the end models' mean is {place.show(mean)}{unsure}"


def _against(place: Place, merge: Scored, names: tuple[str, ...], value: float) -> Comparison:
    """The difference to some end models with its interval; without one where no answers were kept."""
    entry = merge.entry
    measured = place.references.get((entry.method, entry.matching), ())
    bare = Comparison(
        entry.models, entry.method, entry.matching, None, None, place.metric, value, merge.value, None, None, 0,
        reference=names,
    )  # fmt: skip
    return next((one for one in measured if one.reference == names), bare)
