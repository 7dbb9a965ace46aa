"""Words for who cannot see a picture: the numbers that it tells."""

from collections.abc import Sequence

from fusionlab.evaluation.plane import Plane
from fusionlab.evaluation.results import Curve, Results, main_columns
from fusionlab.evaluation.wording import format_value, matching_label, metric_label


def told_of_scores(results: Results) -> str:
    """The main score of every end model and merge, by data set.

    Args:
        results: with scores.
    """
    table = results.table()
    said = []
    for column in main_columns(table):
        place = table.columns.index(column)
        values = ", ".join(
            f"{table.label(entry, results.models)} {format_value(column.metric, entry.values[place], unit=True)}"
            for entry in table.entries
            if entry.values[place] is not None
        )
        where = "" if column.data_set is None else f" on {column.data_set}"
        said.append(f"{metric_label(column.metric)}{where}: {values}.")
    return " ".join(said)


def told_of_lines(curves: Sequence[Curve]) -> str:
    """The barrier and the score half way of each matching.

    Args:
        curves: between two models on one data set.
    """
    return " ".join(
        f"{matching_label(curve.matching)}: barrier {format_value('barrier', curve.barrier)}, "
        f"{metric_label(curve.metric)} half way {format_value(curve.metric, curve.midpoint_score, unit=True)}."
        for curve in curves
    )


def told_of_plane(planes: Sequence[Plane]) -> str:
    """The loss of three models, and of their mean in each matching.

    Args:
        planes: of the same models on one data set.
    """
    ends = ", ".join(
        f"{name} {format_value('loss', loss)}"
        for name, loss in zip(planes[0].models, planes[0].at_corners, strict=True)
    )
    means = "; ".join(f"{matching_label(plane.matching)} {format_value('loss', plane.at_mean)}" for plane in planes)
    return f"Loss of the models: {ends}; of their mean: {means}."


def told_of_distances(results: Results, anchor: str, source: str) -> str:
    """The distance of a pair over all layers, before and after each matching.

    Args:
        results: with distances.
        anchor: of the pair.
        source: of the pair.
    """
    return " ".join(
        f"{matching_label(total.matching)}: {format_value('distance', total.before)} before, "
        f"{format_value('distance', total.after)} after."
        for total in results.total_distances()
        if (total.anchor, total.source) == (anchor, source)
    )
