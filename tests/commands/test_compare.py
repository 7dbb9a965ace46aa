"""`fusionlab compare`: plan, run, resume after a kill, tables; wrong configs are one sentence; shipped ones parse."""

import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from fusionlab.cli import main
from fusionlab.commands import compare, parsing
from fusionlab.configs import shipped_folder
from fusionlab.grid.design import Grid
from tests.commands.conftest import Command
from tests.forked import Child

GRIDS = sorted(path for path in shipped_folder().glob("*.yaml") if "end_models" in yaml.safe_load(path.read_text()))


def config(folder: Path, ckpts: Path, **changes: Any) -> Path:
    """A grid of three ViTs on digits, the plain average, the paper's matching."""
    ends = {name: {"ckpt": str(ckpts / name), "data": {"class_path": "Digits"}} for name in "abc"}
    settings: dict[str, Any] = {
        "end_models": ends, "methods": ["simple"], "matchings": ["paper"], "test_samples": 40,
        "output": str(folder / "out"), "accelerator": "cpu",
    }  # fmt: skip
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(settings | changes, sort_keys=False))
    return path


def scores(folder: Path) -> list[dict[str, Any]]:
    """All numbers of a folder, without times."""
    return [row | {"seconds": None} for row in json.loads((folder / "results.json").read_text())]


def test_plan_run_and_second_start(command: Command, ckpts: Path, tmp_path: Path) -> None:
    """A dry run counts and writes nothing; a run makes everything; a second start makes nothing and says the same."""
    path = config(tmp_path, ckpts, points=3)
    plan = command("compare", "--config", path, "--dry-run")
    assert plan.code == 0
    assert "12 cells in" in plan.out
    assert "estimated time" in plan.out
    assert "Matching, statistics and what each cell starts with are not counted" in " ".join(plan.out.split())
    assert not (tmp_path / "out").exists()
    first = command("compare", "--config", path)
    assert first.code == 0, first.err
    assert "12/12" in first.out
    assert "change by matching" in first.out
    out = tmp_path / "out"
    for name in ("summary.md", "summary.tex", "summary.csv", "results.json", "results.csv", "report.html"):
        assert (out / name).stat().st_size > 0
    times = {file: file.stat().st_mtime_ns for file in (out / "cells").iterdir()}
    table, numbers = (out / "summary.md").read_text(), scores(out)
    second = command("compare", "--config", path)
    assert second.code == 0
    assert {file: file.stat().st_mtime_ns for file in (out / "cells").iterdir()} == times
    assert (out / "summary.md").read_text() == table
    assert scores(out) == numbers
    done = command("compare", "--config", path, "--dry-run")
    assert "all │ │ 12 │ 0 │ 0 s" in done.out
    assert "not counted" not in done.out


def test_end_models_of_different_types(command: Command, ckpts: Path, tmp_path: Path) -> None:
    """That is said, also by a second start, which reads its cells and loads no model."""
    data = {"class_path": "Digits"}
    ends = {name: {"ckpt": str(ckpts / name), "data": data} for name in ("half_a", "b")}
    path = config(tmp_path, ckpts, end_models=ends, matchings=[], test_samples=10, ensemble=False)
    words = "End models are stored in different types (half_a in bfloat16, b in float32)."
    for _ in range(2):
        outcome = command("compare", "--config", path)
        assert (outcome.code, outcome.err) == (0, "")
        assert words in outcome.out
        for name in ("summary.md", "report.html"):
            assert words in (tmp_path / "out" / name).read_text()


def test_a_killed_run_goes_on(command: Command, ckpts: Path, tmp_path: Path) -> None:
    """Killed without warning in the middle, the next start ends with the same table as a run in one go."""
    (tmp_path / "whole").mkdir()
    assert command("compare", "--config", config(tmp_path / "whole", ckpts)).code == 0
    path = config(tmp_path, ckpts)
    child = Child(lambda: main(["compare", "--config", str(path)]), seconds=120)
    cells, end = tmp_path / "out" / "cells", time.monotonic() + 120
    while len(list(cells.glob("*.json")) if cells.exists() else []) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    child.send(signal.SIGKILL)
    assert child.end().code == -signal.SIGKILL
    made = {file: file.stat().st_mtime_ns for file in cells.glob("*.json")}
    assert 4 <= len(made) < 12
    assert not (tmp_path / "out" / "results.json").exists()
    assert command("compare", "--config", path).code == 0
    assert {file: file.stat().st_mtime_ns for file in made} == made, "finished cells are not made again"
    assert scores(tmp_path / "out") == scores(tmp_path / "whole" / "out")
    tables = [
        [line.rsplit("|", 2)[0] for line in (folder / "out" / "summary.md").read_text().splitlines()]
        for folder in (tmp_path, tmp_path / "whole")
    ]
    assert tables[0] == tables[1]


def test_a_failed_cell_is_told(command: Command, ckpts: Path, tmp_path: Path) -> None:
    """The others are made, the exit code is 0, and the sentence is in terminal, table and page."""
    ends = {
        name: {"ckpt": str(ckpts / where), "data": {"class_path": "Digits"}}
        for name, where in (("a", "a"), ("b", "b"), ("lost", "nowhere"))
    }
    outcome = command("compare", "--config", config(tmp_path, ckpts, end_models=ends))
    assert outcome.code == 0
    assert "A second start tries the failed cells again." in outcome.out
    for text in (outcome.out, (tmp_path / "out/summary.md").read_text(), (tmp_path / "out/report.html").read_text()):
        assert "end model lost, seed 0" in text


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"methods": ["nonsense"]}, "nonsense"),
    ({"methods": {"simple": {"alpha": 1}}}, "alpha"),
    ({"matchings": ["nonsense"]}, "nonsense"),
    ({"matchings": {"x": {"preset": "paper", "colour": 1}}}, "colour"),
    ({"groups": "trios"}, "groups is 'trios'; expected pairs, growing, all"),
    ({"groups": [["a", "x"]]}, "names 'x', which is no end model"),
    ({"seeds": [1, 1]}, "seeds"),
    ({"heads": "none"}, "heads"),
    ({"points": 1}, "points is 1"),
    ({"points": 3, "heads": "union"}, "points is 3 and heads is 'union'"),
    ({"devices": 2}, "devices is 2 (2 here), but one process writes a grid; expected 1"),
    ({"precision": "bf16-true"}, "precision is 'bf16-true', which rounds the models"),
    ({"end_models": {"a": {"ckpt": "a"}, "b": {"ckpt": "b"}}}, "a has no data"),
    ({"end_models": {"a": {"fit": "vit_digits.yaml", "ckpt": "b"}}}, "expected exactly one"),
    ({"end_models": {"a": {"fit": "vit_digits.yaml", "options": {"model.nothing.here": 1}}}}, "model.nothing.here"),
    ({"end_models": {"a": {"fit": "no_such_config.yaml"}}}, "no_such_config"),
    ({"colour": 1}, "colour"),
    ({"on": "rey"}, "on is 'rey'; expected 'ray', or 'ray://HOST:PORT' of a Ray cluster"),
    ({"cpus": 4}, "cpus is 4, and cells are made in this process; expected --on with --cpus"),
    ({"on": "ray", "cpus": 0}, "cpus is 0; expected at least 1 processor for each cell"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words for _, words in WRONG])
def test_wrong_configs(command: Command, ckpts: Path, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """One sentence, exit code 2, nothing written."""
    outcome = command("compare", "--config", config(tmp_path, ckpts, **changes))
    assert outcome.code == 2
    assert outcome.err.startswith("fusionlab compare: error:")
    assert words in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "plan"])
def test_ray_that_is_not_installed(
    command: Command, ckpts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """One sentence that names the extra, before any work."""
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = command("compare", "--config", config(tmp_path, ckpts), "--on", "ray", *more)
    assert outcome.code == 2
    assert outcome.err.strip() == (
        "fusionlab compare: error: cells run on Ray, which is not installed; pip install 'fusionlab[ray]'"
    )
    assert not (tmp_path / "out").exists()


def test_nothing_that_works_is_an_error(command: Command, ckpts: Path, tmp_path: Path) -> None:
    """Exit code 2 where every cell failed, each reason told once."""
    ends = {name: {"ckpt": str(tmp_path / name), "data": {"class_path": "Digits"}} for name in "ab"}
    outcome = command("compare", "--config", config(tmp_path, ckpts, end_models=ends))
    assert outcome.code == 2
    assert "every cell failed, the first with: end model a, seed 0:" in outcome.err
    assert "Failed: seed 0, b, end model: end model b, seed 0:" in outcome.out


def test_a_fault_of_fusionlab_in_every_cell_is_told_as_one(
    command: Command, ckpts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 70, with the traceback of the first in a log, as without a grid; not the fault of any input."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[int] = []

    def broken(*given: Any) -> Any:
        made.append(len(made))
        raise KeyError(f"number {made[-1]}")

    monkeypatch.setattr("fusionlab.grid.runner.CandidateTest", broken)
    outcome = command("compare", "--config", config(tmp_path, ckpts))
    assert outcome.code == 70
    assert len(made) == 12
    assert "Failed: seed 0, a, end model: internal error: KeyError: 'number 0'" in outcome.out
    assert "internal error: KeyError: 'number 0'; this is a fault of fusionlab, not of your input" in outcome.err
    (log,) = tmp_path.glob("fusionlab-error-*.log")
    assert "in broken" in log.read_text()


def test_trained_on_the_way(command: Command, ckpts: Path, tmp_path: Path) -> None:
    """End models and the multi-task model are fine-tuned from configs, each on its own data, then merged."""
    small = {
        "trainer.max_epochs": 1,
        "trainer.accelerator": "cpu",
        "trainer.limit_train_batches": 2,
        "trainer.limit_val_batches": 1,
    }
    ends = {
        name: {"fit": "vit_digits.yaml", "options": small | {"data.init_args": {"classes": [2 * index, 2 * index + 1]}}}
        for index, name in enumerate("ab")
    }
    multitask = {"fit": "vit_digits.yaml", "options": small}
    path = config(tmp_path, ckpts, end_models=ends, multitask=multitask)
    outcome = command("compare", "--config", path)
    assert outcome.code == 0, outcome.err
    trained = {file.name.rsplit("-", 1)[0] for file in (tmp_path / "out" / "end_models").iterdir() if file.is_dir()}
    assert trained == {"a-seed0", "b-seed0", "multi-task-seed0"}
    (run,) = (tmp_path / "out" / "end_models").glob("multi-task*.yaml")
    parts = yaml.safe_load(run.read_text())["data"]["init_args"]["parts"]
    assert [part["init_args"]["classes"] for part in parts] == [[0, 1], [2, 3]]
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {row["method"] for row in rows} >= {"end model", "multi-task", "ensemble", "simple"}


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_shipped_grids_parse(path: Path) -> None:
    """Every field is known, methods, matchings and configs of end models exist; nothing is read but the configs."""
    parsed = parsing.parse(compare.make_parser("compare", ""), ["--config", str(path)])
    grid = compare.make_grid(parsed)
    assert isinstance(grid, Grid)
    assert grid.cells()
    assert len({grid.fingerprint(cell) for cell in grid.cells()}) == len(grid.cells())
