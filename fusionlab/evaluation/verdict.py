"""The verdict on matching, in plain words computed from the numbers and their intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fusionlab.evaluation.claims import COSTS, DIVERGED, HELPS, OPEN, SAME, Claim, Effect
from fusionlab.evaluation.distances import by_pair
from fusionlab.evaluation.places import Place, Scored, places
from fusionlab.evaluation.results import UNMATCHED, Results, main_columns
from fusionlab.evaluation.standing import against_ends, against_ends_at, best_merge
from fusionlab.evaluation.wording import format_change, format_value, listing, merge_label, metric_label

# So many comparisons are told by their number; of so many some are off their interval by chance.
MANY = 5
EFFECTS: dict[Effect, str] = {
    HELPS: "helps {}",
    COSTS: "costs {}",
    SAME: "makes no difference that the examples show {}",
    OPEN: "cannot be judged {} without an interval",
    DIVERGED: "cannot be judged {}, as a merge diverges",
}


@dataclass(frozen=True)
class Verdict:
    """A headline and the paragraphs that support it; names in them are set in backticks."""

    headline: str
    paragraphs: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.headline, *self.paragraphs))


def verdict(results: Results) -> Verdict:
    """Say in a few sentences what the results mean, also where matching did not help or nothing was evaluated.

    "Helps", "costs" and "makes no difference" are said of one method matched and unmatched, and of the 95 % interval of
    their difference over test examples (of a grid: over groups that share no end model): it lies above 0, below 0, or
    holds 0.
    """
    found = [place for place in places(results) if place.merges or place.claims]
    compared = [place for place in found if place.claims]
    key = _kept(results, compared) if compared else None
    # What the headline says of one place is not said again.
    told = key if sum(key in place.claims for place in compared) == 1 else None
    paragraphs = [" ".join(_sentences(place, told)) for place in found]
    if key is None and len(found) > 1:
        places_told = zip(found, paragraphs, strict=True)
        paragraphs = [
            " ".join((against_ends_at(place, results.kept, with_opening=False), words)) for place, words in places_told
        ]
    paragraphs += _by_group(results, key)
    if any(len(place.merges) > 2 for place in found):
        paragraphs[-1] += " The best merge was picked by these same numbers, so expect slightly less on new data."
    if sum(claim.effect in (HELPS, COSTS, SAME) for place in found for claim in place.claims.values()) >= MANY:
        paragraphs[-1] += (
            " Of comparisons in which matching changes nothing, one in twenty still seems to help or cost."
        )
    weights = _barriers(results) + _distances(results, scored=bool(found))
    paragraphs += [" ".join(weights)] if weights else []
    if found:
        headline = against_ends(found, results.kept) if key is None else _headline(compared, *key)
        return Verdict(headline, tuple(filter(None, map(str.strip, paragraphs))))
    if results.curves:
        return Verdict("No merge was scored by itself; the line between the models was.", tuple(paragraphs))
    if results.distances:
        return Verdict("Distances were measured, but no merge was evaluated on data.", tuple(paragraphs))
    if results.rows:
        return Verdict("Only end models were evaluated; there is no merge to compare them with.", ())
    return Verdict("Nothing was measured.", ())


def _kept(results: Results, compared: Sequence[Place]) -> tuple[str, str]:
    """Method and matching of the merge that is kept, where it was compared; else the first that was."""
    keys = [key for place in compared for key in place.claims]
    return results.kept if results.kept in keys else keys[0]


def _headline(compared: Sequence[Place], method: str, matching: str) -> str:
    """The effect of matching on one merge, and a word on other methods that see it otherwise."""
    keys = [key for place in compared for key in place.claims]
    told = [(place, claim) for place in compared if (claim := place.claims.get((method, matching))) is not None]
    name = f"Matching by `{matching}`" if len({how for _, how in keys}) > 1 else "Matching"
    if len(told) == 1:
        headline = _claim(name, method, *told[0])
    else:
        of = f" of `{method}`" if len({one for one, _ in keys}) > 1 else ""
        headline = f"{name}{of} {_by_effect(told)}."
    return headline + _disagreement(compared, method, matching)


def _claim(name: str, method: str, place: Place, claim: Claim) -> str:
    """One place: what happened, from what to what, and how sure it is."""
    before, after = (place.show(value) for value in (claim.comparison.unmatched, claim.comparison.matched))
    merge, metric, where = merge_label(method), metric_label(place.metric), place.where
    if claim.effect == DIVERGED:
        sides = dict(claim.diverged)
        what = " and ".join(f"its {thing}" for thing in dict.fromkeys(sides.values())) or "a score is not a number"
        if len(sides) == 1 and "matched" in sides:
            return f"{name} breaks {merge}: it diverges {where}, {what}; unmatched it has {before} {metric}."
        if len(sides) == 1:
            return (
                f"{name} has nothing to be compared with: unmatched, {merge} diverges {where}, {what}; matched it has "
                f"{after} {metric}."
            )
        return f"{name} cannot be judged: {merge} diverges with and without it {where}, {what}."
    change = f"{merge} goes from {before} to {after} {metric} {where}"
    if claim.effect == OPEN:
        return f"Whether {name[0].lower()}{name[1:]} helps is open: {change} ({claim.interval})."
    weak = _weakness(place, method, claim.comparison.matching)
    if claim.effect == SAME:
        return (
            f"{name} makes no difference that {claim.units} show: {merge} has {before} {metric} without and {after} "
            f"with it {where}; {claim.allowed()}{weak}."
        )
    end = place.best(place.ends)
    level = "" if end is None else f"; the best end model has {place.show(end.value)}"
    return f"{name} {claim.effect}: {change}, {claim.difference} ({claim.interval}){weak}{level}."


def _weakness(place: Place, method: str, matching: str) -> str:
    """A claim that the unmatched merge, the matched one, or both predict nothing."""
    plain, matched = (place.find(method, key) for key in (UNMATCHED, matching))
    before, after = ("" if merge is None else merge.weakness for merge in (plain, matched))
    if before and before == after:
        return f"; with and without it the merge {after}"
    return (f"; unmatched it {before}" if before else "") + (f"; matched it {after}" if after else "")


def _by_effect(told: Sequence[tuple[Place, Claim]]) -> str:
    where = {effect: [place.where for place, claim in told if claim.effect == effect] for effect in EFFECTS}
    return "; it ".join(text.format(listing(where[effect])) for effect, text in EFFECTS.items() if where[effect])


def _disagreement(compared: Sequence[Place], method: str, matching: str) -> str:
    """A sentence where other methods, matched alike, have another effect."""
    others: dict[Effect, dict[str, None]] = {}
    for place in compared:
        own = place.claims.get((method, matching))
        for (other, how), claim in place.claims.items():
            if own is not None and how == matching and claim.effect != own.effect:
                others.setdefault(claim.effect, {})[merge_label(other)] = None
    if not others:
        return ""
    parts = [text.format(f"with {listing(list(others[e]))}") for e, text in EFFECTS.items() if e in others]
    where = "" if len(compared) == 1 else " somewhere"
    return f" The methods disagree{where}: it {'; it '.join(parts)}."


def _sentences(place: Place, told: tuple[str, str] | None) -> list[str]:
    unmatched = [f"{merge_label(merge.entry.method)} {_has(place, merge)}" for merge in place.unmatched]
    clauses = [f"{listing(unmatched)} unmatched"] if 0 < len(unmatched) <= 3 else []
    clauses += [_ends(place)] if place.ends else []
    if not place.claims:
        matched = [merge for merge in place.merges if merge.entry.matching != UNMATCHED]
        clauses += [f"{merge.called} {_has(place, merge)}" for merge in matched[:3]]
    sentences = [f"{place.where[0].upper()}{place.where[1:]} {'; '.join(clauses)}."] if clauses else []
    return [*sentences, *_effects(place, told), *best_merge(place), *_failures(place)]


def _effects(place: Place, told: tuple[str, str] | None) -> list[str]:
    """Every comparison but the one told before in its own sentence; where they are many, how many are of each kind."""
    if len(place.claims) > MANY:
        counts = {effect: sum(claim.effect == effect for claim in place.claims.values()) for effect in EFFECTS}
        known = [text.format(f"in {counts[effect]}") for effect, text in EFFECTS.items() if counts[effect]]
        return [f"Of {len(place.claims)} pairs of a method and a matching, matching {'; it '.join(known)}."]
    several = len({method for method, _ in place.claims}) > 1 or not place.merges
    sentences = []
    for (method, matching), claim in place.claims.items():
        if (method, matching) == told:
            continue
        name = f"{merge_label(method)} matched by `{matching}`" if several else f"matched by `{matching}` the merge"
        name = f"{name[0].upper()}{name[1:]}" + ("" if place.merges else f" {place.where}")
        after = claim.comparison.matched
        if claim.effect == DIVERGED:
            reasons = " and ".join(f"the {side} one diverges ({what})" for side, what in claim.diverged)
            sentences.append(f"{name} cannot be judged: {reasons or 'a score is not a number'}.")
        elif claim.effect == OPEN:
            sentences.append(f"{name} has {place.show(after)}, {claim.difference} ({claim.interval}).")
        else:
            reaches = "reaches" if claim.effect == HELPS else "has"
            sentences.append(
                f"{name} {reaches} {place.show(after)}: matching {claim.effect}, {claim.difference} ({claim.interval})."
            )
    return sentences


def _by_group(results: Results, key: tuple[str, str] | None) -> list[str]:
    """A claim on how many groups of a grid, and data sets, one merge is better in on the test examples."""
    main = {(column.domain, column.data_set, column.metric) for column in main_columns(results.table())}
    claims = [
        Claim(one)
        for one in results.comparisons
        if (one.method, one.matching) == key and (one.domain, one.data_set, one.metric) in main
    ]
    if not results.overall or key is None or not claims:
        return []
    method, matching = key
    counts = {effect: sum(claim.effect == effect for claim in claims) for effect in EFFECTS}
    known = [text.format(f"in {counts[effect]}") for effect, text in EFFECTS.items() if counts[effect]]
    return [
        f"Of {len(claims)} comparisons of one group on one data set, {merge_label(method)} matched by `{matching}` "
        f"{'; it '.join(known)}."
    ]


def _failures(place: Place) -> list[str]:
    """Sentences that name the models which diverge or predict nothing."""
    names: dict[str, list[str]] = {}
    for one in (*place.ends, *place.merges):
        if failure := f"diverges ({one.diverged})" if one.diverged else one.weakness:
            names.setdefault(failure, []).append(one.called)
    sentences = []
    for failure, found in names.items():
        verb, _, rest = failure.partition(" ")
        verb = {"is": "are"}.get(verb, verb.removesuffix("s")) if len(found) > 1 else verb
        subject = listing(found)
        sentences.append(f"{subject[0].upper()}{subject[1:]} {verb} {rest}.")
    if place.left_out:
        sentences.append(f"Left out {place.where}, as they diverge: {'; '.join(place.left_out)}.")
    return sentences


def _has(place: Place, scored: Scored) -> str:
    return "diverges" if scored.diverged else f"has {place.show(scored.value)} {metric_label(place.metric)}"


def _ends(place: Place) -> str:
    known = [one.value for one in place.ends if math.isfinite(one.value)]
    shown = [place.show(one.value) for one in place.ends]
    if len(shown) == 1:
        return f"the end model has {shown[0]}"
    if len(shown) == 2:
        return f"the end models have {shown[0].removesuffix(' %')} and {shown[1]}"
    lowest, highest = (place.show(end(known, default=math.nan)) for end in (min, max))
    return f"the {len(shown)} end models have {lowest} to {highest}"


def _barriers(results: Results) -> list[str]:
    sentences = []
    for anchor, source, data_set in dict.fromkeys((c.anchor, c.source, c.data_set) for c in results.curves):
        found = {
            c.matching: c.barrier
            for c in results.curves
            if (c.anchor, c.source, c.data_set) == (anchor, source, data_set)
        }
        matchings = [matching for matching in found if matching != UNMATCHED]
        if UNMATCHED not in found or not matchings:
            continue
        kept = results.kept[1] if results.kept is not None else matchings[0]
        matching = kept if kept in found and kept != UNMATCHED else matchings[0]
        line = f"between `{anchor}` and `{source}` on {data_set}"
        before, after = (format_value("barrier", found[name]) for name in (UNMATCHED, matching))
        if not (math.isfinite(found[UNMATCHED]) and math.isfinite(found[matching])):
            sentences.append(f"The loss barrier {line} is {before} unmatched and {after} with `{matching}`.")
            continue
        verb = "stays at" if before == after else "falls" if found[matching] < found[UNMATCHED] else "rises"
        change = before if before == after else f"from {before} to {after}"
        sentences.append(f"The loss barrier {line} {verb} {change} with `{matching}`.")
    # More than three pairs are read in the table of barriers, not in prose.
    return sentences if len(sentences) <= 3 else []


def _distances(results: Results, scored: bool) -> list[str]:
    sentences, grows = list[str](), False
    for (anchor, source), totals in by_pair(results.total_distances()).items():
        # Distances in different gauges cannot be compared; what each matching changes in its own can.
        best = min(totals, key=lambda total: total.after / total.before if total.before else math.inf)
        is_closer = best.after <= best.before
        grows |= not is_closer
        is_choice = len(totals) > 1 and is_closer
        opening = f"Weights come closest with `{best.matching}`:" if is_choice else f"With `{best.matching}`"
        start = "" if best.as_given is None else f", in a gauge that takes it there from {_length(best.as_given)},"
        sentences.append(
            f"{opening} the distance from `{source}` to `{anchor}` goes from {_length(best.before)}{start} "
            f"to {_length(best.after)} ({format_change(best.before, best.after)})."
        )
    sentences = sentences if len(sentences) <= 3 else []
    if sentences and grows:
        sentences.append("Matching that looks at data or learns looks at outputs, not at the distance, which may grow.")
    if sentences and not scored:
        sentences.append("Closer weights alone do not tell whether a merge works: evaluate on data to find out.")
    return sentences


def _length(value: float) -> str:
    return format_value("distance", value)
