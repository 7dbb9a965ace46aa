"""Cells on a real Ray cluster of two nodes, of which one is killed in the middle: ``make test-ray``."""

import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from fusionlab import checkpoints
from fusionlab.grid.design import EndModel
from fusionlab.grid.folder import write_results
from fusionlab.grid.on_ray import OnRay
from fusionlab.grid.runner import GridRunner
from tests.commands.small import vit
from tests.grid.toys import CPU, grid, no_training, numbers, vits

if not os.environ.get("RAY_CLUSTER"):
    pytest.skip("starting a cluster takes minutes on a busy machine; make test-ray", allow_module_level=True)
ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


def train_until_told(model: EndModel, seed: int, path: Path) -> None:
    """Says on which node it is, and waits until the test has seen that."""
    number = (model.fit or {})["number"]
    places = Path((model.fit or {})["places"])
    node = ray.get_runtime_context().get_node_id()
    (places / f"{number}-{node}-{os.getpid()}").touch()
    while not (places / "go").exists():
        time.sleep(0.05)
    checkpoints.save(vit(number), path)


def table(folder: Path) -> list[str]:
    """The summary without its column of times."""
    return [line.rsplit("|", 2)[0] for line in (folder / "summary.md").read_text().splitlines()]


def test_one_of_two_nodes_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cell is tried again on the other one; what was finished stays; numbers and table are those without Ray."""
    places = tmp_path / "places"
    places.mkdir()
    given = vits(tmp_path)
    trained = {
        name: EndModel(given[name].data, fit={"number": number, "places": str(places)})
        for number, name in ((10, "b"), (20, "c"))
    }
    # Ray would end workers, and try their cells again, where other programs take most of this machine's memory.
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    other = cluster.add_node(num_cpus=1)
    finished_before: dict[Path, int] = {}

    def kill() -> None:
        """Once both train, one on each node."""
        while len(list(places.iterdir())) < 2 and not is_over.is_set():
            time.sleep(0.05)
        cells = list((tmp_path / "ray" / "cells").glob("*.json"))
        finished_before.update({path: path.stat().st_mtime_ns for path in cells})
        cluster.remove_node(other, allow_graceful=False)
        (places / "go").touch()

    is_over = Event()
    killer = Thread(target=kill)
    killer.start()
    try:
        runner = GridRunner(grid({"a": given["a"], **trained}), tmp_path / "ray", train_until_told, CPU)
        found = {done.cell: done for done in runner.run(OnRay("ray"))}
    finally:
        is_over.set()
        killer.join()
        cluster.shutdown()
    assert {done.error for done in found.values()} == {None}
    nodes = [path.name.split("-") for path in places.iterdir() if path.name != "go"]
    assert len(nodes) == 3, "two trainings, one of them twice"
    assert len({node for _, node, _ in nodes}) == 2
    (first,) = finished_before
    assert first.stat().st_mtime_ns == finished_before[first], "a finished cell is not made again"
    cells = runner.grid.cells()
    here = GridRunner(grid(given), tmp_path / "here", no_training, CPU)
    alone = list(here.run())
    for mine, theirs in zip(numbers([found[cell] for cell in cells]), numbers(alone), strict=True):
        assert mine.value == pytest.approx(theirs.value, rel=1e-5)
        assert (mine.models, mine.method, mine.matching, mine.data_set) == (
            theirs.models, theirs.method, theirs.matching, theirs.data_set,
        )  # fmt: skip
    for one, what in ((runner, [found[cell] for cell in cells]), (here, alone)):
        write_results(what, one.grid, one.folder, "Digits", "", one.examples)
    lines = [line for line in table(tmp_path / "ray") if not line.startswith("| end model")]
    assert lines == [line for line in table(tmp_path / "here") if not line.startswith("| end model")]
