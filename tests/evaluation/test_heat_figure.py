"""The map of distances: a cell for each number, the darker the larger, in one scale before and after."""

from dataclasses import replace

import matplotlib.colors as colours
from matplotlib.axes import Axes

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.heat_figure import heat_figure, may_be_map


def distances() -> list[Distance]:
    """Two kinds of spaces in three layers, one outside of them, two matchings."""
    found = []
    for place, matching in enumerate(("paper", "weights")):
        for row, role in enumerate(("ffn", "attention")):
            found += [Distance("b", "a", matching, role, n, 9.0 + row + n, 5.0 + row - place + n) for n in range(3)]
        found.append(Distance("b", "a", matching, "residual", None, 20.0, 2.0))
    return found


def numbers(panel: Axes) -> list[float]:
    return [float(text.get_text()) for text in panel.texts]


def test_every_distance_is_a_cell() -> None:
    """Before, then after each matching; the numbers are those of the distances."""
    for stacked in (False, True):
        before, paper, weights = heat_figure(distances(), stacked).axes
        assert [panel.get_title(loc="left") for panel in (before, paper, weights)] == ["before", "paper", "weights"]
        assert sorted(numbers(before)) == [9, 10, 10, 11, 11, 12, 20]
        assert sorted(numbers(paper)) == [2, 5, 6, 6, 7, 7, 8]
        assert sorted(numbers(weights)) == [2, 4, 5, 5, 6, 6, 7]
        assert [label.get_text() for label in before.get_xticklabels()] == ["0", "1", "2", "none"]


def test_before_is_in_the_gauge_of_the_matching() -> None:
    """What the gauge changes is no effect of matching; matchings with a gauge of their own have their own before."""
    gauged = [replace(d, as_given=d.before + 0.5) for d in distances() if d.matching == "weights"]
    before, _ = heat_figure(gauged, False).axes
    assert sorted(numbers(before)) == [9, 10, 10, 11, 11, 12, 20]
    moved = [replace(d, before=d.before + 1, as_given=d.before) for d in gauged]
    plain = [d for d in distances() if d.matching == "paper"]
    both = heat_figure([*plain, *moved], False).axes
    titles = [panel.get_title(loc="left") for panel in both]
    assert titles == ["before, for paper", "paper", "before, for weights", "weights"]
    assert sorted(numbers(both[2])) == [10, 11, 11, 12, 12, 13, 21]


def test_larger_is_darker_in_all_maps() -> None:
    shades = [
        (float(text.get_text()), sum(colours.to_rgb(patch.get_facecolor())))
        for panel in heat_figure(distances(), False).axes
        for patch, text in zip(panel.patches, panel.texts, strict=True)
    ]
    ordered = [light for _, light in sorted(shades, key=lambda one: (one[0], -one[1]))]
    assert ordered == sorted(ordered, reverse=True)


def test_a_map_needs_several_of_both() -> None:
    assert may_be_map(distances())
    assert not may_be_map([d for d in distances() if d.role != "ffn"])
    assert not may_be_map([d for d in distances() if d.layer in (0, None)])


def test_many_layers_have_no_numbers() -> None:
    many = [Distance("b", "a", "paper", role, n, 2.0, 1.0) for role in ("ffn", "attention") for n in range(24)]
    before, after = heat_figure(many, False).axes
    assert (len(before.patches), len(before.texts)) == (48, 0)
    assert len(after.get_xticks()) <= 13
