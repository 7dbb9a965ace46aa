"""Statistics on disk: gathered once for all groups, and again for whatever changes them."""

from pathlib import Path
from typing import Any

import pytest

from fusionlab.grid.design import EndModel, Grid
from fusionlab.statistics import basis_of, store
from tests.grid.toys import Words, berts, grid, numbers, runner, vits


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bases of the models that passes over data are made with, one for each pass."""
    found: list[str] = []
    gathered = store.gathered
    monkeypatch.setattr(
        store, "gathered", lambda m, *a, **k: found.append(basis_of(m.state_dict())) or gathered(m, *a, **k)
    )
    return found


def test_statistics_are_gathered_once_for_all_groups(tmp_path: Path, passes: list[str]) -> None:
    """Three pairs of three models need three passes for unmatched RegMean, in this start and in the next."""
    given = grid(vits(tmp_path), methods={"regmean": {}}, matchings={})
    whole = list(runner(given, tmp_path / "out").run())
    assert len(passes) == len(set(passes)) == 3
    for file in (tmp_path / "out" / "cells").iterdir():
        file.unlink()
    assert numbers(list(runner(given, tmp_path / "out").run())) == numbers(whole)
    assert len(passes) == 3


@pytest.mark.parametrize(
    "changes",
    [{"seeds": (1,)}, {"samples": 10}, {"methods": {"fisher": {"labels": "empirical"}}}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_changes_statistics_is_gathered_again(tmp_path: Path, passes: list[str], changes: dict[str, Any]) -> None:
    """Another draw of the samples, or other labels of Fisher information, for the same checkpoints."""
    for times, chosen in enumerate(({}, {}, changes), start=1):
        given = grid(berts(tmp_path), **({"methods": {"fisher": {}}, "matchings": {}} | chosen))
        finished = list(runner(given, tmp_path / "out").run())
        assert not [done.error for done in finished if done.error]
        assert len(passes) == (4 if times == 3 else 2)


def test_other_data_make_a_new_pass(tmp_path: Path, passes: list[str]) -> None:
    """The same checkpoint with other data has other Gram matrices: those of a grid that began with them."""
    chosen: dict[str, Any] = {"methods": {"regmean": {}}, "matchings": {}}

    def others() -> Grid:
        ends = berts(tmp_path)
        return grid(ends | {"b": EndModel(Words("b", seed=9), ends["b"].ckpt)}, **chosen)

    list(runner(grid(berts(tmp_path), **chosen), tmp_path / "out").run())
    after = list(runner(others(), tmp_path / "out").run())
    assert [passes.count(basis) for basis in dict.fromkeys(passes)] == [1, 2]
    assert numbers(after) == numbers(list(runner(others(), tmp_path / "fresh").run()))
