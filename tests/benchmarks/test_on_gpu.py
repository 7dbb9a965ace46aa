"""The benchmark on a GPU with tiny models on the processor: every kind of piece runs, goes on and is on the page."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.examples import BENCHMARKS, images, text
from tests.parts import long


@long
def test_every_piece_runs_and_goes_on(tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A first call without files leaves trainings out; later ones go on with them, an epoch in each, to the end."""
    on_gpu, pieces = benchmark("on_gpu"), benchmark("gpu_pieces").pieces()
    folder = tmp_path / "out"
    small = ["--accelerator", "cpu", "--small", "--folder", str(folder), "--threads", "1", "--runs", "1"]
    words = [
        "device",
        "deberta",
        "decompositions",
        "assignments",
        "vit_6_8_256",
        "steps gpt2",
        "training gpt2",
        "untied",
    ]
    chosen = ["--pieces", *words]
    assert on_gpu.main([*small, *chosen, "--count", "2"]) == 0
    assert len(json.loads((folder / "on_gpu.json").read_text())) == 2
    assert on_gpu.main([*small, *chosen]) == 0
    found = json.loads((folder / "on_gpu.json").read_text())
    assert "left out: training vit_6_8_256, seed 0: no --cifar" in capsys.readouterr().err
    assert {name.split()[0].rstrip(",") for name in found} == {
        "device", "matching", "decompositions", "assignments", "steps"
    }  # fmt: skip
    given = ["--cifar", str(images(tmp_path / "cifar")), "--shakespeare", str(text(tmp_path / "plays.parquet"))]
    for _ in range(2):
        assert on_gpu.main([*small, *chosen, *given, "--epochs", "2", "--minutes", "0"]) == 0
    assert capsys.readouterr().err.count("goes on in the next call") == 4
    found = json.loads((folder / "on_gpu.json").read_text())
    wanted = {name for name in pieces if any(word in name for word in words)}
    assert set(found) == wanted
    for name, cell in found.items():
        assert all(math.isfinite(value) for value in cell.values() if isinstance(value, float)), name
        if name.startswith("barrier"):
            assert cell["points"] == 3
            assert 0 < cell["ends"] < 10
    page = (folder / "gpu.md").read_text()
    assert "Measured on: processor" in page
    assert "## Not run yet" in page
    assert "- steps vit_7_12_384" in page
    assert "- steps vit_6_8_256" not in page


@long
def test_a_training_that_is_ended_goes_on_after_its_last_epoch(
    tmp_path: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = benchmark("gpu_models")
    begun: list[int] = []

    class Ending(models.Stopping):  # type: ignore[misc, name-defined]
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            begun.append(trainer.current_epoch)
            if begun == [0, 1]:
                raise RuntimeError("ended")

    monkeypatch.setattr(models, "Stopping", Ending)
    data = {"path": str(text(tmp_path / "plays.parquet")), "limit": 32, "batch_size": 8, "max_length": 16}
    training = models.Training("gpt2_shakespeare.yaml", models.SMALL, data, 2, seed=0)
    with pytest.raises(RuntimeError, match="ended"):
        training.goes_on(tmp_path / "model", "cpu", math.inf)
    assert training.goes_on(tmp_path / "model", "cpu", math.inf)
    assert begun == [0, 1, 1]


def test_the_page_says_that_nothing_has_been_run(benchmark: Any) -> None:
    pieces = benchmark("gpu_pieces").pieces()
    page = benchmark("gpu_page").page({}, list(pieces))
    assert "No piece has been run on a GPU yet" in page
    assert f"Of {len(pieces)} pieces {len(pieces)} have not been run" in page
    assert (
        page == (BENCHMARKS.parent / "docs" / "results" / "gpu.md").read_text(encoding="utf-8")
        or (BENCHMARKS.parent / "docs" / "results" / "on_gpu.json").exists()
    )


def test_without_a_gpu_it_says_so(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert benchmark("on_gpu").main(["--pieces", "device"]) == 2
    assert "no GPU is seen here" in capsys.readouterr().err
