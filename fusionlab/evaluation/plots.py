"""All figures of a run, each with its words: scores of the merges, curves along lines, distances by layer."""

from dataclasses import dataclass
from functools import cached_property

from matplotlib.figure import Figure

from fusionlab.evaluation.distance_figure import distance_figure
from fusionlab.evaluation.drawing import Style, png, styles
from fusionlab.evaluation.heat_figure import heat_figure, may_be_map
from fusionlab.evaluation.line_figure import line_figure
from fusionlab.evaluation.picture_words import told_of_distances, told_of_lines, told_of_plane, told_of_scores
from fusionlab.evaluation.plane_figure import plane_figure
from fusionlab.evaluation.results import UNMATCHED, Results, main_columns
from fusionlab.evaluation.scores_figure import scores_figure, scores_title
from fusionlab.evaluation.wording import file_name, listing

# What to look for in a figure; only what the figure has is spoken of.
_LINE = (
    "Every point is a weighted mean of the two models' weights: the anchor at 0, the other model at 1, their plain "
    "average half way. A hump in the loss above the dashed line is the barrier."
)
_LINE_MATCHED = (
    " A good matching keeps the line flat, close to the dashed one. Both ends stay where they are, because matching "
    "does not change what a model computes."
)
_DISTANCE = (
    "Grey bars are the distances before matching; a coloured point below its bar is a layer that a matching moved "
    "closer to the anchor, one above it a layer that it moved away, and one on it a layer that it left where it was."
)
_GAUGED = (
    " A matching with a gauge starts from its own, broken bars: what the gauge alone changes is no effect of matching."
)
_NO_PROOF = (
    " Closer weights are the aim of weight matching alone, and no proof of a better merge: what looks at data or "
    "learns may move models apart, and the scores decide."
)


@dataclass(frozen=True)
class Plot:
    """A figure with its words.

    Attributes:
        kind: ``"scores"``, ``"line"`` or ``"distance"``.
        name: of its file, without a suffix.
        figure: the drawing.
        title: what is seen.
        caption: what to look for in it.
        told: what it tells, for who cannot see it.
    """

    kind: str
    name: str
    figure: Figure
    title: str
    caption: str
    told: str

    @cached_property
    def png(self) -> bytes:
        """The drawing as the bytes of a PNG file."""
        return png(self.figure)


def plots(results: Results, stacked: bool = False) -> list[Plot]:
    """All figures that the results have data for.

    Args:
        results: what to draw.
        stacked: panels below each other, for narrow screens, instead of side by side.
    """
    look = styles(results)
    drawn: list[Plot] = []
    if any(entry.is_merge for entry in results.table().entries):
        drawn.append(_scores_plot(results, look, stacked))
    for anchor, source, data_set in dict.fromkeys((c.anchor, c.source, c.data_set) for c in results.curves):
        curves = [c for c in results.curves if (c.anchor, c.source, c.data_set) == (anchor, source, data_set)]
        title = f"From {anchor} to {source} on {data_set}"
        drawn.append(
            Plot(
                "line",
                file_name("line", data_set, anchor, source),
                line_figure(curves, look, stacked),
                title,
                _LINE + (_LINE_MATCHED if any(curve.matching != UNMATCHED for curve in curves) else ""),
                told_of_lines(curves),
            )
        )
    for data_set in dict.fromkeys(plane.data_set for plane in results.planes):
        planes = [plane for plane in results.planes if plane.data_set == data_set]
        names = listing(list(planes[0].models))
        drawn.append(
            Plot(
                "line",
                file_name("plane", data_set),
                plane_figure(planes, stacked),
                f"The plane through {names} on {data_set}",
                "Every point is a weighted sum of the three models; the weights sum to 1. Where a basin of "
                "low loss holds all three and their mean, they can be averaged; a ridge between them is the barrier.",
                told_of_plane(planes),
            )
        )
    for anchor, source in dict.fromkeys((d.anchor, d.source) for d in results.distances):
        distances = [d for d in results.distances if (d.anchor, d.source) == (anchor, source)]
        drawn.append(
            Plot(
                "distance",
                file_name("distance", anchor, source),
                distance_figure(distances, look, stacked),
                f"Distance from {source} to {anchor}, by layer",
                _DISTANCE + (_GAUGED if any(d.as_given is not None for d in distances) else "") + _NO_PROOF,
                told_of_distances(results, anchor, source),
            )
        )
        if may_be_map(distances):
            drawn.append(
                Plot(
                    "distance",
                    file_name("distance_map", anchor, source),
                    heat_figure(distances, stacked),
                    f"Distance from {source} to {anchor}, by layer and kind of space",
                    "The same distances in one scale: the darker a cell, the farther apart the models are there. Cells "
                    "are paler after a matching than before where it brought the models closer, and darker where it "
                    "moved them apart.",
                    told_of_distances(results, anchor, source),
                )
            )
    return drawn


def _scores_plot(results: Results, look: dict[str, Style], stacked: bool) -> Plot:
    columns = main_columns(results.table())
    merged = {entry.matching for entry in results.table().entries if entry.is_merge}
    level = "The end models are the level that a perfect merge would keep."
    compare = (
        " Compare each matched merge with the unmatched one of its method: what a matching adds is the difference "
        "between the two."
    )
    return Plot(
        "scores",
        file_name("_".join(dict.fromkeys(column.metric for column in columns))),
        scores_figure(results, look, stacked),
        scores_title(columns),
        level + (compare if UNMATCHED in merged and len(merged) > 1 else ""),
        told_of_scores(results),
    )
