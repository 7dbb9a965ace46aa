"""The picture of a page about fine-tunes of one base: what every method keeps of several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from intervals import half_width
from matplotlib.lines import Line2D
from same_base_page import cell_name, shares_of
from same_base_settings import Setting

from fusionlab.evaluation.drawing import COLOURS, INK, MARKERS, MUTED, legend, panels, png, title


def figure(found: dict[str, Any], methods: Sequence[str], setting: Setting) -> bytes:
    """The picture, as the bytes of a PNG file.

    Args:
        found: all cells.
        methods: that were measured.
        setting: of which fine-tunes.
    """
    drawn, (panel,) = panels(1, 1, 0.29 * len(methods) + 1.2, stacked=False)
    counts, seeds = setting.counts, setting.test

    def kept(count: int, method: str) -> list[float]:
        given = found["chosen"][f"{count} {method}"]
        scores = [found[cell_name("test", seed, count, method, given)]["scores"] for seed in seeds]
        return [100 * fmean(row) for row in shares_of(found, scores, count, seeds)]

    ordered = sorted(methods, key=lambda method: fmean(kept(max(counts), method)))
    handles = []
    for place, count in enumerate(counts):
        colour, shift = COLOURS[place], 0.22 * (place - (len(counts) - 1) / 2)
        values = [kept(count, method) for method in ordered]
        rows = [row - shift for row in range(len(ordered))]
        panel.errorbar(
            [fmean(one) for one in values], rows, xerr=[half_width(one) for one in values], fmt=MARKERS[place],
            color=colour, ecolor=colour, elinewidth=1, capsize=0, markersize=5, alpha=0.9,
        )  # fmt: skip
        base = [found[f"test {seed} ends"]["base"][:count] for seed in seeds]
        nothing = 100 * fmean(fmean(row) for row in shares_of(found, base, count, seeds))
        panel.axvline(nothing, color=colour, linestyle=(0, (4, 3)), linewidth=1, alpha=0.8)
        handles += [
            Line2D([], [], color=colour, marker=MARKERS[place], linestyle="none", label=f"{count} tasks"),
            Line2D([], [], color=colour, linestyle=(0, (4, 3)), linewidth=1, label=f"the base model, {count} tasks"),
        ]
    panel.axvline(100, color=MUTED, linewidth=1)
    panel.set_yticks(range(len(ordered)), ordered)
    panel.tick_params(axis="y", labelcolor=INK)
    panel.set_ylim(-0.7, len(ordered) - 0.3)
    panel.set_xlabel("kept of the fine-tunes' own scores (%), mean and 95 % interval")
    title(drawn, f"{setting.words.title}, chosen hyperparameters")
    legend(drawn, handles, len(counts))
    return png(drawn)
