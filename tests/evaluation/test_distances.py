"""What a gauge changes is told beside what matching changes, never as its effect: in words, tables and pictures."""

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from fusionlab.evaluation.distances import Distance, by_gauge
from fusionlab.evaluation.page import page
from fusionlab.evaluation.plots import plots
from fusionlab.evaluation.report import console_table
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.verdict import verdict


def gauged() -> Results:
    """A gauge that takes the models apart (30 to 100), a matching in it (80), and one without a gauge (29)."""
    distances = [
        Distance("b", "a", "weights", "ffn", layer, 100.0 + layer, 80.0 + layer, 30.0 + layer) for layer in range(2)
    ]
    distances += [Distance("b", "a", "paper", "ffn", layer, 30.0 + layer, 29.0 + layer) for layer in range(2)]
    return Results("t", ("a", "b"), distances=distances)


def test_the_verdict_counts_from_the_gauge() -> None:
    """Of two matchings the one that brings models closer in its own gauge is named, with what the gauge did."""
    words = str(verdict(gauged()))
    assert "Weights come closest with `weights`" in words
    assert "from 142.1 to 113.8 (−19.9 %)" in words.replace(  # noqa: RUF001
        ", in a gauge that takes it there from 43.14,", ""
    )
    assert "in a gauge that takes it there from 43.14" in words
    alone = replace(gauged(), distances=gauged().distances[2:])
    assert "gauge" not in str(verdict(alone))


def test_the_table_has_a_column_for_the_gauge() -> None:
    stream = io.StringIO()
    Console(file=stream, width=120).print(console_table(gauged()))
    shown = [" ".join(line.split()) for line in stream.getvalue().splitlines()]
    assert any("distance as given" in line and "in one gauge" in line for line in shown)
    assert any("weights" in line and "43.14" in line and "142.1" in line and "113.8" in line for line in shown)
    assert any("paper" in line and line.count("43.14") == 2 and "41.73" in line for line in shown)


def test_the_page_has_a_row_for_the_gauge() -> None:
    """Its row has no percentage: it is no effect of matching."""
    html = page(gauged(), verdict(gauged()), [])
    row = html[html.index("unmatched, in the gauge of weights") :]
    row = row[: row.index("</tr>")]
    assert "142.1" in row
    assert "%" not in row
    assert html.index(">unmatched<") < html.index("unmatched, in the gauge of weights")


def test_the_figure_draws_where_each_matching_starts() -> None:
    figure: Figure = next(plot.figure for plot in plots(gauged()) if plot.kind == "distance")
    bars = [[segment[0][1] for segment in bar.get_segments()] for bar in figure.axes[0].collections]
    assert bars == [[30.0, 31.0], [100.0, 101.0]]
    assert np.allclose(figure.axes[0].lines[0].get_ydata(), [80.0, 81.0])
    words = " ".join(text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts())
    assert "unmatched: total 43.14" in words
    assert "unmatched, in the gauge of weights: total 142.1" in words
    assert "weights: total 113.8 (−19.9 %)" in words  # noqa: RUF001


def test_matchings_with_one_gauge_share_a_start() -> None:
    starts = {"weights": (5.0, 9.0), "learned": (5.0, 9.0), "mine": (6.0, 9.0), "paper": (9.0, None)}
    distances = [Distance("b", "a", name, "ffn", 0, start, 1.0, given) for name, (start, given) in starts.items()]
    totals = Results("t", ("a", "b"), distances=distances).total_distances()
    assert [[total.matching for total in gauge] for gauge in by_gauge(totals)] == [["weights", "learned"], ["mine"]]
    assert [total.given for total in totals] == pytest.approx([9.0] * 4)
