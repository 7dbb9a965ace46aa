"""Cells on Ray, by a stand-in of it: the same numbers, lost workers, failures, folders that a node does not see."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusionlab import checkpoints
from fusionlab.errors import InputError
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell, EndModel
from fusionlab.grid.on_ray import OnRay
from fusionlab.grid.runner import GridRunner
from fusionlab.grid.shared import MARK
from tests.commands.small import bert
from tests.grid.fake_ray import HERE, FakeRay, fake_ray
from tests.grid.toys import CPU, Words, berts, grid, numbers, runner


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    return fake_ray(monkeypatch)


def toys(folder: Path, **changes: Any) -> GridRunner:
    """Two BERTs, five cells."""
    return runner(grid(berts(folder), **changes), folder / "out")


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells without numbers; the names of those that were made."""
    made: list[str] = []
    monkeypatch.setattr(GridRunner, "_measure", lambda self, cell: made.append(cell.name) or Finished(cell, ()))
    return made


def in_order(found: list[Finished], given: GridRunner) -> list[Finished]:
    order = given.grid.cells()
    return sorted(found, key=lambda done: order.index(done.cell))


def test_the_same_cells_as_in_this_process(ray: FakeRay, tmp_path: Path) -> None:
    """Rows, files and test examples; a second start makes nothing."""
    given = runner(grid(berts(tmp_path)), tmp_path / "here")
    here = list(given.run())
    found = in_order(list(toys(tmp_path).run(OnRay("ray"))), given)
    assert numbers(found) == numbers(here)
    assert [name for name in ray.names if name != "_look"] == [done.cell.name for done in here]
    assert [(path.name, path.stat().st_size > 0) for path in sorted((tmp_path / "out" / "cells").iterdir())] == [
        (path.name, True) for path in sorted((tmp_path / "here" / "cells").iterdir())
    ]
    again = toys(tmp_path)
    assert all(done is not None for _, done in again.state())
    assert numbers(list(again.run(OnRay("ray")))) == numbers(here)
    assert len(ray.options) == 1 + len(here), "a look from the node, and one task for each cell"
    assert not (tmp_path / "out" / MARK).exists()
    assert not ray.is_initialized()


def test_a_lost_cell_is_tried_again_and_not_made_twice(ray: FakeRay, tmp_path: Path, unmeasured: list[str]) -> None:
    """One whose worker was lost after it had written it is read; one that is lost each time has failed, for now."""
    cells = [cell.name for cell in toys(tmp_path).grid.cells()]
    ray.losses = {cells[0]: 2, cells[-1]: 99}
    found = {done.cell.name: done for done in toys(tmp_path).run(OnRay("ray"))}
    assert sorted(unmeasured) == sorted(cells)
    assert ray.names.count(cells[0]) == 3
    assert [name for name, done in found.items() if done.error is not None] == [cells[-1]]
    assert found[cells[-1]].error == "Ray gave it up after 3 more tries: the node is gone"
    ray.losses = {}
    assert all(done.error is None for done in toys(tmp_path).run(OnRay("ray")))


TRAINED: list[tuple[str, int]] = []


def train_or_fail(model: EndModel, seed: int, path: Path) -> None:
    TRAINED.append((path.name.split("-")[0], seed))
    if (model.fit or {})["name"] == "x":
        raise InputError("the hub cannot be reached")
    checkpoints.save(bert(seed), path)


def test_end_models_are_trained_once_and_what_cannot_be_is_tried_once(ray: FakeRay, tmp_path: Path) -> None:
    TRAINED.clear()
    ends = {name: EndModel(Words(name), fit={"name": name}) for name in "abx"}
    given = GridRunner(grid(ends, matchings={}, ensemble=False), tmp_path, train_or_fail, CPU)
    ray.node_list = [{**HERE, "Resources": {"CPU": 3.0}}]
    found = list(given.run(OnRay("ray")))
    assert sorted(TRAINED) == [("a", 0), ("b", 0), ("x", 0)]
    failed = {done.cell.models: done.error for done in found if done.error is not None}
    assert failed == dict.fromkeys([("x",), ("a", "x"), ("b", "x")], "end model x, seed 0: the hub cannot be reached")
    assert given.broken.keys() == {("x", 0)}
    trained = {done.cell.models[0]: done.rows[0].seconds for done in found if len(done.cell.models) == 1 and done.rows}
    assert trained.keys() == {"a", "b"}
    assert None not in trained.values()


def test_a_fault_comes_back_with_its_traceback(ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: GridRunner, cell: Cell) -> Finished:
        raise KeyError("lost")

    monkeypatch.setattr(GridRunner, "_measure", broken)
    given = toys(tmp_path)
    found = list(given.run(OnRay("ray")))
    assert {done.error for done in found} == {"internal error: KeyError: 'lost'"}
    assert isinstance(given.fault, KeyError)
    assert "in broken" in given.fault.__notes__[0]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("of another grid")], ids=["no", "other"])
def test_a_node_that_does_not_see_the_folder_is_refused(ray: FakeRay, tmp_path: Path, change: Any) -> None:
    """Before any work, with the node's address; nothing is left in the folder."""
    ray.before = lambda name: change(tmp_path / "out" / MARK)
    with pytest.raises(InputError, match=r"^node 10.0.0.1 of the Ray cluster: .*out.* on a file system that all nodes"):
        list(toys(tmp_path).run(OnRay("ray")))
    assert ray.names == ["_look"]
    assert not list((tmp_path / "out").iterdir())


def test_a_node_that_comes_later_and_does_not_see_the_folder_fails_its_cell(
    ray: FakeRay, tmp_path: Path, unmeasured: list[str]
) -> None:
    given = toys(tmp_path)
    last = given.grid.cells()[-1].name

    def before(name: str) -> None:
        if name == last:
            # A worker of its own, which has seen nothing yet.
            monkey.setattr("fusionlab.grid.on_ray._kept", {})
            (tmp_path / "out" / MARK).unlink()

    ray.before = before
    with pytest.MonkeyPatch.context() as monkey:
        found = {done.cell.name: done.error for done in given.run(OnRay("ray"))}
    assert [name for name, error in found.items() if error] == [last]
    assert str(found[last]).startswith("on a node of the Ray cluster: ")


def test_what_is_being_made_is_given_up_with_the_run(ray: FakeRay, tmp_path: Path, unmeasured: list[str]) -> None:
    """As an interruption does; the cells that were finished stay."""
    ray.node_list = [{**HERE, "Resources": {"CPU": 3.0}}]
    run = toys(tmp_path).run(OnRay("ray"))
    first = next(run)
    run.close()
    assert ray.cancelled == 2
    assert [cell for cell, done in toys(tmp_path).state() if done is not None] == [first.cell]
    assert not ray.is_initialized()


def test_resources_of_a_cell(ray: FakeRay, tmp_path: Path, unmeasured: list[str]) -> None:
    """As many side by side as there is room for; a GPU where the passes take one."""
    ray.node_list = [{**HERE, "Resources": {"CPU": 5.0, "GPU": 1.0}}, {**HERE, "Alive": False}]
    list(toys(tmp_path, ensemble=False, matchings={}).run(OnRay("ray", cpus=2, accelerator="auto")))
    assert {(o["num_cpus"], o["num_gpus"]) for o in ray.options if o.get("name")} == {(2, 1)}
    for accelerator, cpus in (("cpu", 6), ("gpu", 1)):
        ray.node_list = [{**HERE, "Resources": {"CPU": 5.0}}]
        with pytest.raises(InputError, match=f"no node of the Ray cluster has {cpus} CPU( and 1 GPU)? for a cell"):
            list(toys(tmp_path, samples=7).run(OnRay("ray", cpus, accelerator)))


def test_slurm_tells_a_worker_nothing(ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that srun started have its variables, by which Lightning expects as many tasks."""
    given = toys(tmp_path, ensemble=False, matchings={})
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_NAME", "grid")
    assert all(done.error is None for done in given.run(OnRay("ray")))
    assert os.environ["SLURM_JOB_NAME"] == "interactive"


@pytest.mark.parametrize(
    ("given", "words"),
    [(("rey",), "on is 'rey'; expected 'ray', or 'ray://HOST:PORT'"), (("ray", 0), "cpus is 0; expected at least 1")],
)
def test_wrong_places(ray: FakeRay, given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        OnRay(*given)


def test_a_cluster_that_does_not_answer(ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError("ray client connection timeout")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError, match=r"on is 'ray://h:1', but Ray cannot be reached there \(ray client connection"):
        list(toys(tmp_path).run(OnRay("ray://h:1")))


def test_data_that_cannot_be_sent(ray: FakeRay, tmp_path: Path) -> None:
    ends = berts(tmp_path)
    ends["a"].data.reader = lambda: None
    given = runner(grid({**ends, "a": replace(ends["a"])}), tmp_path / "out")
    with pytest.raises(InputError, match=r"the grid cannot be sent to Ray .* data modules that can be pickled"):
        list(given.run(OnRay("ray")))
