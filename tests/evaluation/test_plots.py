"""Figures show the numbers they were given, and a matching looks the same in all of them."""

import io
import itertools
import math
import unicodedata
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.drawing import UNMATCHED_COLOUR, png, styles
from fusionlab.evaluation.plots import plots
from fusionlab.evaluation.results import UNMATCHED, Curve, Results, Row

POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


def make(count: int, model: str = "b", value: float = 0.5) -> Results:
    matchings = [UNMATCHED, *(f"matching with a rather long name, number {index}" for index in range(count))]
    rows = [Row((name,), "end model", "-", "digits", "in", "accuracy", 0.95) for name in ("a", model)]
    curves, distances = [], []
    for index, matching in enumerate(matchings):
        rows.append(Row(("a", model), "simple", matching, "digits", "in", "accuracy", value + 0.01 * index, 1.0))
        loss = (0.1, 1.0 + index, 2.0 + index, 1.0 + index, 0.2)
        curves.append(Curve(model, "a", matching, "digits", "in", POSITIONS, loss, (0.9, 0.5, 0.3, 0.5, 0.8)))
        if matching != UNMATCHED:
            for role in ("attention.qk", "ffn"):
                distances += [Distance(model, "a", matching, role, n, 4.0 + n, 3.0 + n - index / 10) for n in range(3)]
            distances.append(Distance(model, "a", matching, "residual", None, 50.0, 40.0 - index))
    return Results("t", ("a", model), rows, curves, distances)


def by_kind(results: Results, stacked: bool = False) -> dict[str, Figure]:
    """The first figure of each kind."""
    return {plot.kind: plot.figure for plot in reversed(plots(results, stacked))}


def test_each_matching_has_one_colour_and_no_two_share_it() -> None:
    results = make(10)
    look = styles(results)
    assert len({style.colour for style in look.values()}) == 11
    figures = by_kind(results)
    lines = {line.get_label().split(": barrier")[0]: line for line in figures["line"].axes[0].lines if line.get_label()}
    points = dict(zip(results.matchings[1:], figures["distance"].axes[0].lines, strict=True))
    bars = figures["scores"].axes[0].patches[2:]
    for bar, (matching, style) in zip(bars, look.items(), strict=True):
        assert to_hex(bar.get_facecolor()) == style.colour
        name = "unmatched" if matching == UNMATCHED else matching
        assert lines[name].get_color() == style.colour
        if matching != UNMATCHED:
            assert points[matching].get_color() == style.colour
    assert look[UNMATCHED].colour == UNMATCHED_COLOUR


def test_past_ten_matchings_styles_still_differ() -> None:
    look = styles(make(14))
    assert len({(style.colour, style.dash) for style in look.values()}) == 15


def test_the_line_figure_draws_the_curves_and_the_chord_between_the_end_models() -> None:
    results = make(1)
    loss, accuracy = by_kind(results)["line"].axes
    for line, curve in zip(loss.lines, results.curves, strict=False):
        assert tuple(line.get_ydata()) == curve.loss
        assert tuple(line.get_xdata()) == POSITIONS
    assert list(loss.lines[-1].get_ydata()) == [0.1, 0.2]
    assert list(accuracy.lines[-1].get_ydata()) == [90.0, 80.0]
    for axes in (loss, accuracy):
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert [unicodedata.numeric(label) for label in labels] == list(axes.get_xticks()) == list(POSITIONS)
    assert {"a\n(anchor)", "b"} <= {text.get_text() for text in loss.texts}


def test_the_barrier_stands_in_the_legend() -> None:
    results = make(1)
    labels = [text.get_text().replace("\n", " ") for text in by_kind(results)["line"].legends[0].get_texts()]
    for curve in results.curves:
        assert any(f"barrier {curve.barrier:.3f}" in label for label in labels)


def test_the_distance_figure_shows_before_and_after_in_every_layer_and_the_whole_model_as_a_number() -> None:
    figure = by_kind(make(1))["distance"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["attention.qk", "ffn"]
    axes = figure.axes[0]
    assert [segment[0][1] for segment in axes.collections[0].get_segments()] == [4.0, 5.0, 6.0]
    assert np.allclose(axes.lines[0].get_ydata(), [2.9, 3.9, 4.9])
    # sqrt(2 (4^2 + 5^2 + 6^2) + 50^2)
    assert "total 51.52" in figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize("count", [0, 1, 10])
def test_every_bar_lies_inside_its_panel_beside_its_name(count: int) -> None:
    results = make(count)
    for axes in by_kind(results)["scores"].axes:
        low, high = axes.get_ylim()
        middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
        assert len(middles) == len(results.rows)
        assert all(low < bar.get_y() and bar.get_y() + bar.get_height() < high for bar in axes.patches)
        assert list(axes.get_yticks()) == pytest.approx(middles)
        assert all(upper - lower > axes.patches[0].get_height() for upper, lower in itertools.pairwise(middles))
        assert axes.get_xlim()[1] > max(bar.get_width() for bar in axes.patches)


@pytest.mark.parametrize(("layers", "every"), [(1, 1), (3, 1), (23, 1), (24, 2)])
def test_layers_are_named_where_they_stand(layers: int, every: int) -> None:
    """All of them where there is room; all lie inside."""
    distances = [Distance("b", "a", "paper", "ffn", layer, 4.0, 3.0) for layer in range(layers)]
    (axes,) = by_kind(Results("t", ("a", "b"), distances=distances))["distance"].axes
    assert list(axes.get_xticks()) == list(range(0, layers, every))
    assert [int(label.get_text()) for label in axes.get_xticklabels()] == list(range(0, layers, every))
    low, high = axes.get_xlim()
    assert all(low < end[0] < high for segment in axes.collections[0].get_segments() for end in segment)


@pytest.mark.parametrize("stacked", [False, True])
def test_no_text_of_a_figure_with_ten_matchings_lies_over_another_or_outside(stacked: bool) -> None:
    for plot in plots(make(10), stacked):
        canvas = FigureCanvasAgg(plot.figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        texts = [*plot.figure.texts, *(text for legend in plot.figure.legends for text in legend.get_texts())]
        for axes in plot.figure.axes:
            texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes._left_title]
            # Ticks outside the limits exist, but are not drawn.
            texts += [
                t for t in axes.get_xticklabels() if axes.get_xlim()[0] <= t.get_position()[0] <= axes.get_xlim()[1]
            ]
            texts += [
                t for t in axes.get_yticklabels() if axes.get_ylim()[0] <= t.get_position()[1] <= axes.get_ylim()[1]
            ]
        boxes = [text.get_window_extent(renderer) for text in texts if text.get_visible() and text.get_text()]
        page = plot.figure.bbox
        for index, box in enumerate(boxes):
            assert min(box.x0 - page.x0, box.y0 - page.y0, page.x1 - box.x1, page.y1 - box.y1) >= -1
            for other in boxes[index + 1 :]:
                overlap = min(box.x1, other.x1) - max(box.x0, other.x0), min(box.y1, other.y1) - max(box.y0, other.y0)
                assert min(overlap) <= 1.5, (plot.kind, box, other)


def test_names_with_dollar_signs_and_losses_that_are_not_numbers_are_drawn() -> None:
    results = make(1, model=r"$\frac{$ odd $x$", value=math.nan)
    results.curves.append(
        Curve("c", "a", "paper", "digits", "in", POSITIONS, (0.1, math.inf, math.nan, 1.0, 0.1), (0.9,) * 5)
    )
    for plot in plots(results):
        assert imread(io.BytesIO(png(plot.figure))).ndim == 3


def test_drawing_leaves_the_global_settings_alone() -> None:
    before = dict(matplotlib.rcParams)
    for plot in plots(make(1)):
        png(plot.figure)
    assert dict(matplotlib.rcParams) == before


def captions(results: Results) -> dict[str, str]:
    """What is said below the first figure of each kind."""
    return {plot.kind: plot.caption for plot in reversed(plots(results))}


def test_captions_speak_of_what_the_figures_have() -> None:
    """Of matchings where something was matched, of gauges where one has a gauge, of both ways that distances go."""
    matched, plain = captions(make(1)), captions(make(0))
    for kind, words in (("scores", "Compare each matched merge"), ("line", "A good matching keeps")):
        assert words in matched[kind]
        assert words not in plain[kind]
    assert "one above it a layer that it moved away" in matched["distance"]
    assert "broken bars" not in matched["distance"]
    gauged = make(1)
    gauged.distances[:] = [replace(one, as_given=one.before + 1) for one in gauged.distances]
    assert "broken bars" in captions(gauged)["distance"]


def test_nothing_is_drawn_of_nothing() -> None:
    assert plots(Results("t", ())) == []
