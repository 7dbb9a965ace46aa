"""The benchmark of encoders of different initialisation: everything of tiny ones, and the page."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from transformers import BertConfig, BertForMaskedLM

from tests.benchmarks.examples import word_tokenizer
from tests.parts import long

FEELINGS = ("joy", "anger", "fear", "sadness")
WORDS = ("good", "bad", "odd", "sad", "man", "went")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a small run on a few texts of each set."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name in ("open", "research_only"):
        (tmp_path / "texts" / name).mkdir(parents=True)
    felt = [{"text": f"{word} man", "labels": [joy]} for word, joy in zip(WORDS, FEELINGS, strict=False)] * 10
    for name in ("open/xed_en", "research_only/isear"):
        pd.DataFrame([{**row, "split": None} for row in felt]).to_parquet(tmp_path / "texts" / f"{name}.parquet")
    sets = {name: list(FEELINGS) for name in ("xed_en", "isear")}
    (tmp_path / "texts" / "label_sets.json").write_text(json.dumps(sets))
    read = [{"text": " ".join(WORDS * 20), "split": split} for split in ("train", "validation", "test")]
    pd.DataFrame(read).to_parquet(tmp_path / "texts" / "open/goemotions.parquet")
    folders = {"texts": "texts", "models": "models", "results": "results"}
    given = [part for name, folder in folders.items() for part in (f"--{name}", str(tmp_path / folder))]
    return ["--small", *given, "--tokenizer", word_tokenizer(tmp_path / "words", WORDS)]


@long
def test_everything_is_measured_once_and_shown(
    benchmark: Any, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoders are pretrained and fine-tuned; settings are the best of the tuning pairs; the page has every way."""
    command, ways, shown = benchmark("encoders"), benchmark("encoders_ways"), benchmark("encoders_page")
    learned, distilled, _ = ways.LEARNING
    plain, regmean = (way for way in ways.WAYS if way.key in ("none none simple", "texts none regmean"))
    every = (plain, regmean, learned, distilled)
    plan = replace(ways.PLAN, tuning=((1, 2),), test=((2, 1),), seeds=(0,), ways=every)
    for module in (command, shown):
        monkeypatch.setattr(module, "PLAN", plan)
    BertForMaskedLM(
        BertConfig(vocab_size=4000, max_position_embeddings=128, **benchmark("encoders_cells").SMALL)
    ).save_pretrained(tmp_path / "models" / "bert_small_mlm_seed2")
    assert command.main([*small, "--count", "1"]) == 0
    file = tmp_path / "results" / "encoders.json"
    before = json.loads(file.read_text())
    assert "Settings are not chosen yet" in file.with_suffix(".md").read_text()
    assert len(before) == 2
    assert command.main(small) == 0
    found = json.loads(file.read_text())
    assert {name: found[name] for name in before} == before
    for way in every:
        cells = [f"tuning 1-2 {benchmark('ways').what(way, given, 0 if way.learns else None)}" for given in way.grid]
        best = way.grid[max(range(len(cells)), key=lambda index: sum(found[cells[index]]["scores"]))]
        assert found["chosen"][way.key] == best
    scores = [score for name, cell in found.items() if "scores" in cell for score in cell["scores"]]
    assert all(0 <= score <= 1 for score in scores)
    page = file.with_suffix(".md").read_text()
    assert all(f"| {way.name} |" in page for way in every)
    assert "## At equal time" in page
    assert "Not measured" not in page
    monkeypatch.setattr(benchmark("encoders_cells"), "make", lambda *_: pytest.fail("measured again"))
    assert command.main(small) == 0
    assert file.with_suffix(".md").read_text() == page


def test_scores_are_compared_with_the_ensemble(benchmark: Any) -> None:
    """The mean over both sets and seeds is held against the ensemble of the same pair."""
    shown, ways = benchmark("encoders_page"), benchmark("encoders_ways")
    found: dict[str, Any] = {"chosen": {way.key: {} for way in ways.WAYS}}
    found["equal time"] = {way.key: 700 for way in ways.PLAN.rivals}
    learned = ways.LEARNING[0]
    for place, pair in enumerate(ways.TEST):
        name = f"test {pair[0]}-{pair[1]}"
        found[f"{name} ends"] = {"ends": [[0.4, 0.1], [0.1, 0.3]], "ensemble": [0.3, 0.3]}
        for seed in ways.SEEDS:
            scores = [0.25 + 0.02 * place + 0.001 * (seed - 1), 0.29]
            found[f"{name} {benchmark('ways').what(learned, {}, seed)}"] = {"scores": scores, "seconds": 2.0}
    page = shown.page(found)
    # 27 to 31 percent on the mean over both sets, of which 31 alone is above 30.
    row = next(line for line in page.splitlines() if line.startswith("| texts | **`learned`** | 3 |"))
    cells = [cell.strip() for cell in row.split("|")[4:8]]
    mean, half = map(float, cells[0].split(" ± "))
    assert mean == pytest.approx(29.0)
    assert half == pytest.approx(2.776 * math.sqrt(2.5) / math.sqrt(5), abs=0.06)
    assert cells[1:] == ["27.0", "1 of 5", "2"]
