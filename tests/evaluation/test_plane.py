"""The plane through three models: its geometry, the loss on it under a Trainer, and its figure."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.evaluation.plane import Plane
from fusionlab.evaluation.plane_figure import plane_figure
from fusionlab.evaluation.plane_points import (
    PlaneModule,
    corners_of,
    grid_of,
    points_of,
    refuse_plane,
    shares_at,
)
from fusionlab.evaluation.plots import plots
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.scores import Scores
from fusionlab.experiment import Plan, refuse_no_plane
from fusionlab.fusion import Data
from tests.commands.small import vit
from tests.matching.problems_at_random import normal, seeds
from tests.symmetry.models import laws


@laws
@given(seeds)
def test_points_lie_where_their_coordinates_say(seed: int) -> None:
    """A weighted sum is as far from every corner in weight space as its point is from the corner in the plane."""
    states = [{"w": normal(4, 3, seed=seed + i), "n": torch.tensor(i)} for i in range(3)]
    corners = corners_of(states)
    assert corners is not None
    for x, y in normal(4, 2, seed=seed + 3).tolist():
        shares = shares_at(corners, x, y)
        assert sum(shares) == pytest.approx(1)
        here = {"w": sum(share * state["w"] for share, state in zip(shares, states, strict=True))}
        for corner, state in zip(corners, states, strict=True):
            found = parameter_distance(here, {"w": state["w"]})
            assert found == pytest.approx(math.dist((x, y), corner), rel=1e-9, abs=1e-9)
    assert [shares_at(corners, *corner) for corner in corners] == [
        pytest.approx(unit, abs=1e-12) for unit in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]


def test_models_on_a_line_have_no_plane() -> None:
    first, second = normal(5, seed=0), normal(5, seed=1)
    for states in ((first, second, 0.3 * first + 0.7 * second), (first, first, second)):
        assert corners_of([{"w": state} for state in states]) is None


def test_the_grid_holds_the_triangle_and_a_margin() -> None:
    corners = ((0.0, 0.0), (4.0, 0.0), (5.0, 2.0))
    across, upwards = grid_of(corners, 5)
    assert across == pytest.approx((-1.25, 0.625, 2.5, 4.375, 6.25))
    assert upwards == pytest.approx((-0.5, 0.25, 1.0, 1.75, 2.5))
    shares = points_of(corners, 5)
    assert len(shares) == 29
    assert shares[7] == pytest.approx(shares_at(corners, across[2], upwards[1]))


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
def test_losses_are_those_of_the_weighted_sums() -> None:
    """As measured by merging with these weights; the models keep every bit."""
    models = [vit(seed) for seed in range(3)]
    generator = torch.Generator().manual_seed(0)
    samples: Any = [
        {"pixel_values": torch.randn(1, 8, 8, generator=generator), "labels": torch.tensor(index % 10)}
        for index in range(9)
    ]
    loader = DataLoader(samples, batch_size=4)
    shares = [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.3, 0.2), (1.4, -0.6, 0.2)]
    module = PlaneModule(models, shares, Scores)
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    Trainer(accelerator="cpu", enable_model_summary=False, **quiet).test(module, [loader] * 4, verbose=False)
    for weights, found in zip(shares, module.scores, strict=True):
        point = vit(0)
        with torch.no_grad():
            for parameter, *parts in zip(point.parameters(), *(m.parameters() for m in models), strict=True):
                parameter.copy_(sum(w * part for w, part in zip(weights, parts, strict=True)))
        expected = Scores()
        for batch in loader:
            expected.update(point.eval(), batch)
        assert found["loss"] == pytest.approx(expected.compute()["loss"], rel=1e-5)
    for seed, model in enumerate(models):
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), vit(seed).parameters(), strict=True))


def planes() -> list[Plane]:
    corners = ((0.0, 0.0), (4.0, 0.0), (1.0, 3.0))
    across, upwards = grid_of(corners, 4)
    found = []
    for matching, mean in (("none", 2.0), ("weights", 0.5)):
        loss = tuple(tuple(math.nan if x == y == 0 else 0.1 * (x + y) for x in range(4)) for y in range(4))
        place = (matching, "digits", "in", corners, across, upwards)
        found.append(Plane(("a", "b", "c"), *place, loss, (0.1, 0.2, 0.3), mean))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("stacked", [False, True])
def test_the_figure_has_a_panel_for_each_matching(stacked: bool) -> None:
    """In one scale, with the corners and their mean where they are; what is no number is as high as the scale goes."""
    figure = plane_figure(planes(), stacked)
    panels = figure.axes[:2]
    assert [panel.get_title(loc="left") for panel in panels] == ["unmatched: mean 2.000", "weights: mean 0.500"]
    levels = [panel.collections[0].levels for panel in panels]
    assert list(levels[0]) == list(levels[1])
    marks = {(x, y) for line in panels[0].lines[1:] for x, y in zip(*line.get_data(), strict=True)}
    assert marks == {(0, 0), (4, 0), (1, 3), (5 / 3, 1)}
    assert {text.get_text() for text in panels[0].texts} == {"a", "b", "c", "mean"}


@pytest.mark.parametrize("size", [1e-4, 0.01, 1.0, 1e3])
def test_no_two_ticks_of_the_scale_read_alike(size: float) -> None:
    """However little the losses differ around 0.7."""
    found = []
    for plane in planes():
        loss = tuple(tuple(0.7 + size * value for value in row) for row in np.nan_to_num(plane.loss).tolist())
        marked = {"at_corners": (0.7, 0.7 + size, 0.7), "at_mean": 0.7 + size}
        found.append(replace(plane, loss=loss, **marked))
    figure = plane_figure(found)
    figure.canvas.draw()
    bar = figure.axes[-1]
    told = [tick.get_text() for tick in bar.get_yticklabels()]
    assert len(told) > 2
    assert len(set(told)) == len(told)


def test_the_picture_tells_its_numbers() -> None:
    (plot,) = plots(Results("t", ("a", "b", "c"), planes=planes()))
    assert plot.kind == "line"
    assert plot.told == "Loss of the models: a 0.100, b 0.200, c 0.300; of their mean: unmatched 2.000; weights 0.500."


@pytest.mark.parametrize("points", [-1, 1, 101])
def test_other_numbers_of_points_are_refused(points: int) -> None:
    with pytest.raises(InputError, match=r"plane is .*; expected 0 for none, or 2 to 100 points along each side"):
        refuse_plane(points)


def test_a_plane_needs_models_as_they_are() -> None:
    with pytest.raises(InputError, match="plane was given with heads own; expected"):
        Plan(plane=3, heads="own")


def test_a_plane_of_other_than_three_models_is_refused() -> None:
    for count, told in ((2, "2 models"), (3, "no data")):
        with pytest.raises(InputError, match=f"plane is 3, and there are {told}; expected three models and data"):
            refuse_no_plane(Plan(plane=3), count, Data())
