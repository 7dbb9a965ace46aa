"""The benchmark of GPT-2s by their own tokens: everything of tiny ones, and the page."""

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.benchmarks.examples import text, word_tokenizer
from tests.parts import long

WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Arguments of a small run."""
    tokenizer = word_tokenizer(tmp_path / "tokens", WORDS)
    folders = ["--models", str(tmp_path / "models"), "--results", str(tmp_path / "results")]
    return ["--small", "--text", str(text(tmp_path / "text.parquet")), "--tokenizer", tokenizer, *folders]


@long
def test_everything_is_measured_once_and_shown(
    benchmark: Any, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are trained, every way is measured of both kinds of embeddings, and other models are measured anew."""
    command, shown = benchmark("gpt2_tokens"), benchmark("gpt2_tokens_page")
    assert command.main([*small, "--pair", "2", "3", "--embeddings", "tied"]) == 0
    file = tmp_path / "results" / "gpt2_tokens.json"
    before = json.loads(file.read_text())
    assert len(before) == 1 + len(shown.WAYS)
    assert (
        "Not measured so far: of seeds 0, 1 all, and of seeds 2, 3 plain mean, untied; "
        in file.with_suffix(".md").read_text()
    )
    assert command.main(small) == 0
    found = json.loads(file.read_text())
    assert {name: found[name] for name in before} == before
    every = sum(len(shown.ways_of(embeddings)) for embeddings in shown.EMBEDDINGS)
    assert len(found) == len(shown.PAIRS) * (1 + every)
    assert all(cell["barrier"] >= 0 for cell in found.values() if "barrier" in cell)
    for name, cell in found.items():
        if "barrier" in cell:
            # Half way is one of the points of the line, and twins compute what their end models do.
            lost = cell["loss"] - fmean(found[f"{name.split()[0]} ends"]["losses"])
            assert cell["barrier"] >= lost - 1e-4, name
    both = [found[f"2-3 {embeddings} none none simple {{}}"]["loss"] for embeddings in shown.EMBEDDINGS]
    assert both[0] == pytest.approx(both[1], rel=1e-5), "untying changes no function, nor that of the mean"
    page = file.with_suffix(".md").read_text()
    assert all(page.count(f"| {way.name} |") == (1 if way.then == "distilled" else 2) for way in shown.WAYS)
    assert "Not measured" not in page
    with monkeypatch.context() as measuring:
        measuring.setattr(command, "make", lambda *_, **__: pytest.fail("measured again"))
        assert command.main(small) == 0
    assert file.with_suffix(".md").read_text() == page
    kept = {name: cell for name, cell in found.items() if name != "2-3 untied none none simple {}"}
    kept["2-3 ends"] = {"losses": [1.0, 2.0], "ensemble": [1.0]}
    file.write_text(json.dumps(kept))
    monkeypatch.setattr(command, "ways_of", lambda _: shown.WAYS[:1])
    assert command.main(small) == 0
    again = json.loads(file.read_text())
    assert again["2-3 ends"] == found["2-3 ends"]
    assert sum(name.startswith("2-3 ") for name in again) == 1 + 2, "cells of other models are gone"
    assert sum(name.startswith("0-1 ") for name in again) == 1 + every


def test_what_a_mean_loses_is_held_against_its_end_models(benchmark: Any) -> None:
    """The intervals by Student's t, and what is no mean of twins has no barrier."""
    shown = benchmark("gpt2_tokens_page")
    weights = next(way for way in shown.WAYS if way.key == "none weights simple")
    distilled = next(way for way in shown.WAYS if way.then == "distilled")
    found: dict[str, Any] = {}
    for place, pair in enumerate(shown.PAIRS):
        found[shown.ends_name(pair)] = {"losses": [5.0, 5.2], "ensemble": [4.9]}
        cell = {"loss": 5.2 + 0.01 * place, "barrier": 0.1 * place, "seconds": 10.0}
        found[shown.cell_name(pair, "untied", weights)] = cell
    found[shown.cell_name(shown.PAIRS[0], "tied", distilled)] = {"loss": 5.0, "seconds": 2.0}
    lines = shown.page(found).splitlines()
    row = next(line for line in lines if "| `weights` |" in line)
    half = 4.303 / math.sqrt(3)
    assert row == (
        f"| none | `weights` | 0.000, 0.100 | 0.100, 0.110 | 0.200, 0.120 | 0.100 ± {0.1 * half:.3f} "
        f"| 0.110 ± {0.01 * half:.3f} | 10 |"
    )
    row = next(line for line in lines if f"| {distilled.name} |" in line)
    assert row == f"| texts | {distilled.name} | -0.100 |  |  |  | -0.100 | 2 |"
    assert "losses on the test text are 5.000 to 5.200" in shown.page(found)
