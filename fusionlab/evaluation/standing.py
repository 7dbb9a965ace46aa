"""The headline where no merge was measured both matched and unmatched: the best merge against its end models."""

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
    DIVERGED: "cannot be judged {}, as no merge and end model have a score there",
}


def against_ends(places: Sequence[Place]) -> str:
    """The headline on the best merge and the best end model, and the mean of the end models, with intervals.

    "Better" and "worse" are said where the 95 % interval of the difference over test examples does not hold 0.

    Args:
        places: at least one, each with merges.
    """
    if len(places) == 1:
        return against_ends_at(places[0])
    effects: dict[Effect, list[str]] = {}
    for place in places:
        claim = _claim(place)
        effects.setdefault(DIVERGED if claim is None else claim.effect, []).append(place.where)
    where = {
        effect: listing(found) if len(places) <= _MANY else f"in {len(found)} of {len(places)} measurements"
        for effect, found in effects.items()
    }
    short = "; it ".join(text.format(where[effect]) for effect, text in _BETTER.items() if effect in where)
    return f"The best merge {short}."


def against_ends_at(place: Place, with_opening: bool = True) -> str:
    """The scores at one place, the difference, and how sure it is.

    Args:
        place: with merges.
        with_opening: whether to begin with what the interval says.
    """
    best, end, claim = place.best(place.merges), place.best(place.ends), _claim(place)
    if best is None:
        return f"No merge has a score {place.where}: {'each one' if len(place.merges) > 1 else 'it'} diverges."
    has = f"{best.called} has {place.show(best.value)} {metric_label(place.metric)} {place.where}"
    weak = f"; the merge {best.weakness}" if best.weakness else ""
    if end is None or claim is None:
        return f"{has[0].upper()}{has[1:]}{weak}; no end model has a score to compare it with."
    kind = "best end model" if len(place.ends) > 1 else "end model"
    sure = {
        SAME: f"; {claim.allowed()}" if claim.effect == SAME else "",
        OPEN: f" ({claim.interval})",
    }.get(claim.effect, f", {claim.difference} ({claim.interval})")
    scores = f"{has}, the {kind}, `{end.entry.name}`, {place.show(end.value)}{sure}{_mean(place, best)}{weak}."
    opening = {
        OPEN: f"Whether the merge differs from the {kind} is open",
        SAME: f"The merge does not differ from the {kind} as far as {claim.units} show",
        HELPS: f"The merge is better than the {kind}",
    }.get(claim.effect, f"The merge is worse than the {kind}")
    return f"{opening}: {scores}" if with_opening else f"{scores[0].upper()}{scores[1:]}"


def _claim(place: Place) -> Claim | None:
    """What the best merge gains over the best end model; None where either has no score."""
    best, end = place.best(place.merges), place.best(place.ends)
    return None if best is None or end is None else Claim(_against(place, best, (end.entry.name,), end.value))


def _mean(place: Place, best: Scored) -> str:
    """The difference to the mean of all end models; nothing where one is missing, or has no score."""
    values = [one.value for one in place.ends if not one.diverged]
    if len(values) < 2 or len(values) < len(best.entry.models):
        return ""
    mean = sum(values) / len(values)
    claim = Claim(_against(place, best, best.entry.models, mean))
    if claim.effect == DIVERGED:
        return ""
    unsure = "" if claim.effect == OPEN else f", {claim.difference} ({claim.interval})"
    return f"; the end models' mean is {place.show(mean)}{unsure}"


def _against(place: Place, best: Scored, names: tuple[str, ...], value: float) -> Comparison:
    """The difference to some end models with its interval; without one where no answers were kept."""
    entry = best.entry
    measured = place.references.get((entry.method, entry.matching), ())
    bare = Comparison(
        entry.models, entry.method, entry.matching, None, None, place.metric, value, best.value, None, None, 0,
        reference=names,
    )  # fmt: skip
    return next((one for one in measured if one.reference == names), bare)
