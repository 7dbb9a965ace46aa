"""The benchmark of CIFAR-10 and GPT-2 at two sizes with tiny models: every row runs, goes on and is on the page."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

from tests.benchmarks.examples import BENCHMARKS, images, text
from tests.parts import long


def large_vits(folder: Path) -> list[str]:
    """Two of one layer, 16 wide."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
        config = ViTConfig(intermediate_size=32, image_size=32, patch_size=4, num_labels=10, **shape)
        ViTForImageClassification(config).save_pretrained(folder / str(seed))
        found.append(str(folder / str(seed)))
    return found


@long
def test_every_row_runs_and_goes_on(tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the files of one kind the other runs; the next call measures what is left and nothing again."""
    command, page = benchmark("sizes_trained"), benchmark("sizes_trained_page")
    results = tmp_path / "results"
    small = ["--small", "--results", str(results), "--models", str(tmp_path / "models")]
    plays = ["--shakespeare", str(text(tmp_path / "plays.parquet"))]
    nothing = ["--cifar", str(tmp_path / "none")]
    assert command.main([*small, *plays, *nothing, "--count", "2"]) == 0
    assert f"left out: cifar: --cifar {tmp_path / 'none'} does not exist" in capsys.readouterr().err
    before = json.loads((results / "sizes_trained.json").read_text())
    assert list(before) == ["tuning 90 ends", "tuning 90 learned 300"]
    given = ["--cifar", str(images(tmp_path / "cifar")), "--vits", *large_vits(tmp_path / "vits")]
    assert command.main([*small, *plays, *given]) == 0
    assert "tuning 90 learned 300 " not in capsys.readouterr().err
    found = json.loads((results / "sizes_trained.json").read_text())
    assert {name: found[name] for name in before} == before
    assert not list(command.cells_to_measure(command.Cells(results / "sizes_trained.json"), small=True))
    assert all(line.endswith(": all rows.") for line in page.trained_missing(found))
    for name, cell in found.items():
        if name.endswith("ends"):
            assert cell["exact"] < 1e-9
            assert list(cell["ensemble"]) == list(cell["large"])
            assert cell["ensemble"]["loss"] < max(cell["small"]["loss"], cell["large"]["loss"]) + 1e-6
            assert cell["grown"]["loss"] == pytest.approx(cell["small"]["loss"], rel=1e-3)
        else:
            assert all(map(math.isfinite, cell["scores"].values()))
            assert sum(cell["agrees"]) <= found[f"{name.rsplit(' ', len(name.split()) - 2)[0]} ends"]["differ"]
        if "line" in cell:
            assert len(cell["losses"]) == page.POINTS
            assert cell["losses"][4] == pytest.approx(cell["scores"]["loss"], rel=1e-3)


def test_the_page_says_what_is_reached_missed_and_missing(benchmark: Any) -> None:
    page = benchmark("sizes_trained_page")
    end = {"loss": 1.0, "accuracy": 0.6}
    ends = {"small": end, "large": {"loss": 1.0, "accuracy": 0.7}, "grown": end, "ensemble": end}
    line = {"line": [0.6] * 9, "losses": [1.0] * 9, "agrees": [1, 2], "seconds": 1.0}
    found = {f"{pair} ends": {**ends, "exact": 1e-15, "parameters": [1, 2], "differ": 9, "of": 99}
             for pair in ("cifar 3", "cifar 4", "gpt2 tied", "gpt2 untied", "gpt2 untied-2")}  # fmt: skip
    for name, accuracy, barrier in (
        ("cifar 3 learned 300", 0.629, 0.2),
        ("cifar 4 learned 300", 0.631, 0.1),
        ("gpt2 tied learned 300", 0.5, 0.101),
        ("gpt2 untied learned 300", 0.5, 0.1),
        ("gpt2 untied-2 learned 300", 0.5, 0.08),
    ):
        found[name] = {**line, "scores": {"loss": 1.1, "accuracy": accuracy}, "barrier": barrier}
    written = page.trained_text(found)
    assert (
        "300 steps is -2.00 points from the mean of the ends over 2 pairs, the worst at -2.1: at most 2 points below "
        "is **missed**. From the better end it is -7.00."
    ) in written
    assert "| `learned`, 300 steps | 63.0 | 62.9 | 62.9 | 63.1 | 1.0 |" in written
    assert "a barrier of 0.101 in one pair: at most 0.10 is **missed**" in written
    assert "a barrier of 0.090 over 2 pairs, at most 0.100: at most 0.10 is **reached**" in written
    assert "| `learned`, 300 steps | 18 | 2 | 4 | 12 |" in written
    missing = page.trained_missing(found)
    assert missing[2] == f"- {page.CIFAR.title}, seed 5, large 1: all rows."
    assert f"- {page.UNTIED.title}, pair 2: plain mean after growth, `weights`." in missing
    assert page.trained_text({}) == ""


def test_the_page_is_that_of_its_cells(benchmark: Any, tmp_path: Path) -> None:
    """What is committed was written by the command."""
    committed = BENCHMARKS.parent / "docs" / "results"
    for name in ("different_sizes.json", "sizes_trained.json"):
        if (committed / name).exists():
            (tmp_path / name).write_bytes((committed / name).read_bytes())
    assert benchmark("sizes_trained").main(["--page", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "different_sizes.md").read_text() == (committed / "different_sizes.md").read_text()
