"""Methods and matchings that a group of a grid cannot take: their cells fail, with the reason, and no others."""

from pathlib import Path

from fusionlab.matching.recipe import recipe
from tests.grid.toys import grid, runner, vits


def test_what_one_group_cannot_take_stops_no_other_cell(tmp_path: Path) -> None:
    """Of three models slerp makes none, and TIES needs a base; all else of the grid is there."""
    groups = (("a", "b"), ("a", "b", "c"))
    given = grid(vits(tmp_path), groups=groups, methods={"simple": {}, "slerp": {}, "ties": {}})
    finished = list(runner(given, tmp_path / "out").run())
    failed = {(done.cell.models, done.cell.method): done.error for done in finished if done.error is not None}
    assert set(failed) == {(groups[1], "slerp"), (groups[0], "ties"), (groups[1], "ties")}
    assert "slerp was given 3 models" in str(failed[groups[1], "slerp"])
    assert "needs the base model" in str(failed[groups[0], "ties"])
    made = {(done.cell.models, done.cell.method, done.cell.matching) for done in finished if done.error is None}
    for group in groups:
        assert {(group, "simple", "none"), (group, "simple", "paper"), (group, "ensemble", "-")} <= made
    assert {(groups[0], "slerp", "none"), (groups[0], "slerp", "paper")} <= made


def test_a_matching_that_heads_rule_out(tmp_path: Path) -> None:
    """Heads of their own have no outputs in common to learn by."""
    matchings = {"weights": recipe("weights"), "learned": recipe("learned", steps=1)}
    given = grid(vits(tmp_path), groups=(("a", "b"),), heads="own", methods={"simple": {}}, matchings=matchings)
    finished = list(runner(given, tmp_path / "out").run())
    failed = [done.cell.matching for done in finished if done.error is not None]
    assert failed == ["learned"]


def test_models_that_do_not_fit_fail_in_their_own_words(tmp_path: Path) -> None:
    ends = vits(tmp_path)
    given = grid({"a": ends["a"], "gone": type(ends["b"])(ends["b"].data, str(tmp_path / "gone"))})
    errors = {done.cell.method: done.error for done in runner(given, tmp_path / "out").run() if done.cell.is_merge}
    assert all("gone" in str(error) for error in errors.values())
