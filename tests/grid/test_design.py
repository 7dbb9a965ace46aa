"""Grids: groups, cells, and what makes a cell be made anew."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusionlab.data import Digits, Emotion
from fusionlab.errors import InputError
from fusionlab.grid.design import Cell, EndModel, Grid, make_groups
from fusionlab.grid.fingerprints import signature
from fusionlab.matching.permutations import PermutationOptions
from fusionlab.matching.recipe import Recipe, recipe

NAMES = ("a", "b", "c")


def grid(**changes: Any) -> Grid:
    """Three end models given as checkpoints."""
    ends = {name: EndModel(Digits(classes=[index]), ckpt=f"{name}-{{seed}}") for index, name in enumerate(NAMES)}
    values = {"groups": make_groups(NAMES, "pairs"), "methods": {"simple": {}}, "matchings": {"paper": recipe("paper")}}
    return Grid(ends, **(values | changes))  # type: ignore[arg-type]


def test_words_for_groups() -> None:
    """Every two, growing prefixes, all at once, or as they are listed."""
    assert make_groups(NAMES, "pairs") == (("a", "b"), ("a", "c"), ("b", "c"))
    assert make_groups(NAMES, "growing") == (("a", "b"), ("a", "b", "c"))
    assert make_groups(NAMES, "all") == (NAMES,)
    assert make_groups(NAMES, [["c", "a"]]) == (("c", "a"),)


def test_every_combination_is_a_cell_once() -> None:
    """Seeds x (end models + multi-task + groups x (ensemble + methods x matchings)), end models first."""
    multitask = EndModel(Digits(), fit={"x": 1})
    cells = grid(methods={"simple": {}, "slerp": {"t": 0.3}}, seeds=(1, 2), multitask=multitask).cells()
    assert len(cells) == len(set(cells)) == 2 * (3 + 1 + 3 * (1 + 2 * 2))
    assert [cell.method for cell in cells[:4]] == ["end model"] * 3 + ["multi-task"]
    assert cells.count(Cell(("a", "c"), "slerp", "paper", 2)) == 1
    assert not any(cell.method == "ensemble" for cell in grid(ensemble=False).cells())


def test_a_grid_without_groups_is_refused() -> None:
    """As of one end model, which there is nothing to merge with."""
    with pytest.raises(InputError, match="groups holds none of 1 end models; expected two end models or more"):
        Grid({"a": EndModel(Digits(), "a")}, groups=make_groups(["a"], "pairs"), methods={"simple": {}}, matchings={})


def test_end_models_outside_all_groups_are_not_trained() -> None:
    """Only what some group needs is measured."""
    cells = grid(groups=(("a", "b"),)).cells()
    assert {cell.models for cell in cells if cell.method == "end model"} == {("a",), ("b",)}


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": {"simple": {"x": 1}}},
        {"matchings": {"paper": recipe("paper", layers="first:1")}},
        {"matchings": {"paper": Recipe(PermutationOptions())}},
        {"samples": 7},
        {"points": 5},
        {"out_of_domain": (Digits(classes=[9]),)},
    ],
)
def test_a_cell_follows_its_settings(changes: dict[str, Any]) -> None:
    """Whatever its numbers follow from changes its fingerprint; another method's settings do not."""
    cell = Cell(("a", "b"), "simple", "paper", 0)
    before = grid()
    assert before.fingerprint(cell) == grid().fingerprint(cell)
    assert replace(before, **changes).fingerprint(cell) != before.fingerprint(cell)
    more = replace(before, methods={"simple": {}, "other": {}}, ensemble=False)
    assert more.fingerprint(cell) == before.fingerprint(cell)


def test_an_end_models_own_data_counts() -> None:
    """The same cell on other data is another cell; a cell without that model is not touched."""
    first = grid()
    ends = dict(first.end_models) | {"a": EndModel(Digits(classes=[5]), ckpt="a-{seed}")}
    second = replace(first, end_models=ends)
    with_a, without = Cell(("a", "b"), "simple", "none", 0), Cell(("b", "c"), "simple", "none", 0)
    assert first.fingerprint(with_a) != second.fingerprint(with_a)
    assert first.fingerprint(without) == second.fingerprint(without)


@pytest.mark.parametrize("is_folder", [False, True])
def test_data_that_were_written_anew_count(tmp_path: Path, is_folder: bool) -> None:
    """A table of other rows by the same name; by a hub id nothing is looked at."""
    place = tmp_path / "rows"
    file = place / "train" / "one.csv" if is_folder else place
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("text,label\nyes,1\n")
    found = []
    for time in (2_000_000_000, 2_000_000_000, 2_000_000_009):
        os.utime(file, (time, time))
        found.append(signature(Emotion(str(place), "bytes")))
    assert found[0] == found[1] != found[2]
    assert "written" not in signature(Emotion("team/rows", "bytes"))


def test_a_base_model_in_place_of_another_counts(tmp_path: Path) -> None:
    """Merges may follow from it, so that another checkpoint in its place makes them anew; end models do not."""
    merge, end = Cell(("a", "b"), "simple", "none", 0), Cell(("a",), "end model", "-", 0)
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_text("one")
    os.utime(base / "model.safetensors", (1, 1))
    given = grid(base=str(base))
    before = [given.fingerprint(cell) for cell in (merge, end)]
    assert [given.fingerprint(cell) for cell in (merge, end)] == before
    os.utime(base / "model.safetensors", (2, 2))
    after = [given.fingerprint(cell) for cell in (merge, end)]
    assert after[0] != before[0]
    assert after[1] == before[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": (("a", "x"),)}, "names 'x', which is no end model"),
        ({"groups": (("a",),)}, "at least two"),
        ({"groups": (("a", "a"),)}, "each once"),
        ({"seeds": ()}, "at least one"),
        ({"seeds": (1, 1)}, "each once"),
        ({"methods": {}}, "methods is empty"),
        ({"test_samples": 0}, "test_samples is 0"),
        ({"points": 1}, "points is 1"),
        ({"seeds": (0, -1)}, r"seeds are \[0, -1\]; expected whole numbers from 0 to 4294967295"),
        ({"seeds": (2**32,)}, r"seeds are \[4294967296\]; expected whole numbers"),
        ({"points": 10_001}, "points is 10001; expected at most 10,000"),
    ],
)
def test_grids_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    """Refused with what was expected."""
    with pytest.raises(InputError, match=message):
        grid(**changes)


def test_an_end_model_is_given_or_trained() -> None:
    """Not both, not neither."""
    for values in ({}, {"ckpt": "a", "fit": {}}):
        with pytest.raises(InputError, match="exactly one"):
            EndModel(Digits(), **values)
