"""Details that the one table leaves out: each group by itself, lines between the models, distances to the anchor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fusionlab.evaluation.distances import TotalDistance
from fusionlab.evaluation.rows import END_MODEL, MULTITASK, UNMATCHED, Domain
from fusionlab.grid.cells import Finished
from fusionlab.grid.summary import Mean, main_rows, mean_score

Key = tuple[str, str]


@dataclass(frozen=True)
class GroupScores:
    """The scores of one group.

    Attributes:
        models: names of its end models.
        scores: by method and matching, means over seeds.
    """

    models: tuple[str, ...]
    scores: dict[Key, Mean]


@dataclass(frozen=True)
class Geometry:
    """The barrier and the distances between the models in one matching.

    Attributes:
        matching: its name, or ``none``.
        barrier: of the loss on the line between the models of a pair, on their own test sets; mean over pairs.
        distance: of the other end models to the anchor; mean over models, groups and seeds.
        start: the same before matching, in the matching's gauge; None for ``none``.
    """

    matching: str
    barrier: Mean | None
    distance: Mean | None
    start: Mean | None = None


def by_group(finished: Sequence[Finished], domain: Domain) -> list[GroupScores]:
    """Every group's merges and ensemble, in the order of the cells.

    Args:
        finished: cells of one grid.
        domain: of the data sets.
    """
    found: dict[tuple[str, ...], dict[Key, list[float]]] = {}
    for done in finished:
        if done.cell.method in (END_MODEL, MULTITASK):
            continue
        score = mean_score(main_rows(done), domain)
        if score is not None:
            key = (done.cell.method, done.cell.matching)
            found.setdefault(done.cell.models, {}).setdefault(key, []).append(score)
    return [
        GroupScores(models, {key: mean for key, values in scores.items() if (mean := Mean.of(values)) is not None})
        for models, scores in found.items()
    ]


def by_data_set(finished: Sequence[Finished]) -> tuple[list[tuple[Domain, str, str]], dict[Key, list[Mean | None]]]:
    """Every merge and reference on every data set that is in domain, or out of domain for all.

    Args:
        finished: cells of one grid.

    Returns:
        Columns (domain, data set, metric), and by method and matching the mean over groups and seeds in each.
    """
    own = {row.data_set for done in finished for row in done.rows if row.domain == "in"}
    values: dict[tuple[Domain, str, str], dict[Key, list[float]]] = {}
    for done in finished:
        for row in main_rows(done):
            is_shown = row.domain == "in" or row.data_set not in own
            if row.data_set is not None and is_shown and math.isfinite(row.value):
                found = values.setdefault((row.domain, row.data_set, row.metric), {})
                found.setdefault((done.cell.method, done.cell.matching), []).append(row.value)
    columns = sorted(values, key=lambda column: column[0] != "in")
    keys = dict.fromkeys((done.cell.method, done.cell.matching) for done in finished if done.error is None)
    return columns, {key: [Mean.of(values[column].get(key, [])) for column in columns] for key in keys}


def geometry(finished: Sequence[Finished]) -> list[Geometry]:
    """Barriers and distances of every matching, the unmatched case first; empty where none were measured."""
    barriers: dict[str, list[float]] = {}
    # Whatever merges them, the models of a group are as far from each other: each counts once.
    distances: dict[str, dict[tuple[tuple[str, ...], int, str], float]] = {}
    starts: dict[str, dict[tuple[tuple[str, ...], int, str], float]] = {}
    for done in finished:
        heights = [curve.barrier for curve in done.curves]
        if heights:
            barriers.setdefault(done.cell.matching, []).append(math.fsum(heights) / len(heights))
        for source in dict.fromkeys(distance.source for distance in done.distances):
            total = TotalDistance.of([distance for distance in done.distances if distance.source == source])
            place = (done.cell.models, done.cell.seed, source)
            distances.setdefault(UNMATCHED, {})[place] = total.given
            distances.setdefault(done.cell.matching, {})[place] = total.after
            starts.setdefault(done.cell.matching, {})[place] = total.before
    names = sorted({*barriers, *distances}, key=lambda name: (name != UNMATCHED, _place(finished, name)))
    return [
        Geometry(
            name,
            Mean.of(barriers.get(name, [])),
            Mean.of(list(distances.get(name, {}).values())),
            Mean.of(list(starts.get(name, {}).values())),
        )
        for name in names
    ]


def _place(finished: Sequence[Finished], matching: str) -> int:
    return [done.cell.matching for done in finished].index(matching) if matching != UNMATCHED else -1
