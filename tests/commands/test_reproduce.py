"""`fusionlab reproduce`: every experiment has its configs; what cannot be had is named, with where to read on."""

from pathlib import Path
from typing import Any

import pytest

from fusionlab.commands import compare, reproduce
from fusionlab.configs import resolve
from fusionlab.grid.runner import GridRunner
from tests.commands.conftest import Command


@pytest.mark.parametrize("name", reproduce.EXPERIMENTS)
def test_configs_are_shipped(name: str) -> None:
    """A bare name finds each of them."""
    for config in reproduce.EXPERIMENTS[name].configs:
        assert resolve(config).is_file()


def test_unknown_experiment(command: Command) -> None:
    """One sentence that names those that there are."""
    outcome = command("reproduce", "table9")
    assert outcome.code == 2
    assert "did you mean table" in outcome.err
    assert "experiment is 'table9'; expected one of table1, table2" in outcome.err


def test_several_devices(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is written: every process would write every file."""
    monkeypatch.chdir(tmp_path)
    outcome = command("reproduce", "figure5", "--accelerator", "cpu", "--devices", 2)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
    assert "devices is 2 (2 here), but one process writes a grid; expected 1" in outcome.err
    assert not list(tmp_path.iterdir())


def test_nothing_can_be_reached(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without checkpoints and data the missing things are named, with the page that says how to supply them."""
    monkeypatch.chdir(tmp_path)
    outcome = command("reproduce", "figure5", "--accelerator", "cpu")
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
    assert "nothing of figure5 could run" in outcome.err
    assert "docs/reproduce.md" in outcome.err
    assert "Nothing of vit_pair_line.yaml could run" in outcome.out
    assert "cifar10" in outcome.out


def test_plan(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan counts the cells of every config and writes nothing; the protocol has a folder of its own."""
    monkeypatch.chdir(tmp_path)
    outcome = command("reproduce", "figure3", "--dry-run", "--protocol", "published")
    assert outcome.code == 0
    # Two end models, the ensemble, four methods, unmatched and four matchings.
    assert "23 cells in reproduce/figure3/published/vit_pair_parts" in outcome.out
    assert not list(tmp_path.iterdir())


def test_protocol_reaches_the_grid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And the rest still runs where one config cannot."""
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, str]] = []

    def run_grid(runner: GridRunner, *rest: Any) -> None:
        seen.append((runner.folder.name, runner.grid.protocol))
        if len(seen) == 1:
            raise reproduce.InputError("not here")

    monkeypatch.setattr(compare, "run_grid", run_grid)
    reproduce.run(["table1", "--protocol", "published"])
    wanted = ["emotion_pairs", "emotion_pairs_deberta", "ner_growing", "ner_growing_deberta"]
    assert seen == [(name, "published") for name in wanted]


def test_a_fault_of_fusionlab_stops_no_other_grid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is raised at the end where nothing could run, whatever inputs the other grids lacked; else it is told."""
    monkeypatch.chdir(tmp_path)
    ends: list[Exception | None] = []
    seen: list[str] = []

    def run_grid(runner: GridRunner, *rest: Any) -> None:
        seen.append(runner.folder.name)
        if (error := ends[len(seen) - 1]) is not None:
            raise error

    monkeypatch.setattr(compare, "run_grid", run_grid)
    missing, fault = reproduce.InputError("not here"), KeyError("a slip")
    ends[:] = [missing, fault, missing, missing]
    with pytest.raises(KeyError, match="a slip"):
        reproduce.run(["table1"])
    assert len(seen) == 4
    seen.clear()
    ends[:] = [missing, fault, None, missing]
    reproduce.run(["table1"])
    assert len(seen) == 4
