"""The picture of the page about merge methods: what every method reaches after every matching."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from intervals import half_width
from matplotlib.lines import Line2D
from merge_methods_page import MATCHINGS, METHODS, ends, scores

from fusionlab.evaluation.drawing import COLOURS, INK, MARKERS, MUTED, legend, panel_title, panels, png, title


def figure(found: dict[str, Any], test: Sequence[int], widths: Sequence[int]) -> bytes:
    """The picture, as the bytes of a PNG file.

    Args:
        found: all cells.
        test: first seeds of the test pairs.
        widths: of the models, one panel each.
    """
    drawn, drawings = panels(len(widths), len(widths), 0.5 * len(METHODS) + 0.8, stacked=False, sharey=True)
    rows = {method: len(METHODS) - 1 - place for place, method in enumerate(METHODS)}
    for panel, width in zip(drawings, widths, strict=True):
        for place, matching in enumerate(MATCHINGS):
            shift = 0.2 * (place - (len(MATCHINGS) - 1) / 2)
            values = [[100 * one for one in scores(found, test, width, matching, method)] for method in METHODS]
            panel.errorbar(
                [fmean(one) for one in values], [row - shift for row in rows.values()],
                xerr=[half_width(one) for one in values], fmt=MARKERS[place], color=COLOURS[place],
                ecolor=COLOURS[place], elinewidth=1, capsize=0, markersize=5,
            )  # fmt: skip
        panel.axvline(100 * fmean(ends(found, test, width)[0]), color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        panel.set_yticks(list(rows.values()), list(rows))
        panel.tick_params(axis="y", labelcolor=INK)
        panel.set_ylim(-0.6, len(METHODS) - 0.4)
        panel.set_xlim(0, 102)
        panel.set_xlabel("accuracy of the merge (%), mean and 95 % interval")
        panel_title(panel, f"{width} wide")
    title(drawn, f"Digits, {len(test)} pairs of models from different seeds: every merge method, unmatched and matched")
    handles = [
        Line2D([], [], color=COLOURS[place], marker=MARKERS[place], linestyle="none", label=words)
        for place, words in enumerate(MATCHINGS.values())
    ]
    handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), linewidth=1, label="the end models"))
    legend(drawn, handles, len(handles))
    return png(drawn)
