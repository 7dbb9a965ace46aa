"""The benchmark of two models of other seeds on real data: everything of tiny ones, and the pages."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
import pytest

from tests.benchmarks.examples import images, text
from tests.parts import long


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a small run."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = ["--cifar", str(images(tmp_path / "images")), "--shakespeare", str(text(tmp_path / "text.parquet"))]
    return ["--small", *data, "--models", str(tmp_path / "models"), "--results", str(tmp_path / "results")]


def shortened(benchmark: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> Any:
    """The plan of a kind with two pairs, one seed of learning and one setting more than the first."""
    kinds = benchmark("trained_pairs_kinds").KINDS
    whole = kinds[kind].plan
    ways = tuple(replace(way, grid=way.grid[:2]) for way in whole.ways)
    plan = replace(whole, ways=ways, test=((3, 4), (5, 6)), seeds=(0,))
    monkeypatch.setitem(kinds, kind, replace(kinds[kind], plan=plan))
    return plan


@long
@pytest.mark.parametrize("kind", ["cifar10", "gpt2_untied", "experts"])
def test_everything_is_measured_once_and_shown(
    benchmark: Any, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Settings are the best of the tuning pair; the page has every way; what is measured is not measured again."""
    command, plan = benchmark("trained_pairs"), shortened(benchmark, monkeypatch, kind)
    assert command.main([kind, *small, "--count", "1"]) == 0
    file = tmp_path / "results" / f"{kind}.json"
    before = json.loads(file.read_text())
    assert len(before) == 2
    assert "Settings are not chosen yet" in file.with_suffix(".md").read_text()
    assert command.main([kind, *small, "--pair", "5", "6"]) == 0
    assert "Not measured so far: " in file.with_suffix(".md").read_text()
    assert command.main([kind, *small]) == 0
    found = json.loads(file.read_text())
    assert {name: found[name] for name in before} == before
    accuracy, what = kind == "cifar10", benchmark("ways").what
    for way in plan.ways:
        cells = [found[f"tuning {'1-2' if accuracy else '11-12'} {what(way, given, 0 if way.learns else None)}"]
                 for given in way.grid]  # fmt: skip
        scores = [cell["accuracy"] if accuracy else -cell["loss"] for cell in cells]
        assert found["chosen"][way.key] == way.grid[scores.index(max(scores))], way.name
    for pair in plan.test:
        ends = found[f"test {pair[0]}-{pair[1]} ends"]
        assert len(ends["ends"]) == 2
        for name, cell in found.items():
            if name.startswith(f"test {pair[0]}-{pair[1]} ") and "barrier" in cell and not accuracy:
                assert cell["barrier"] >= cell["loss"] - fmean(ends["ends"]) - 1e-4, name
    page = file.with_suffix(".md").read_text()
    assert all(page.count(f"| {way.name} |") == (3 if way.learns else 2) for way in plan.ways)
    assert "Not measured" not in page
    monkeypatch.setattr(command, "make", lambda *_: pytest.fail("measured again"))
    assert command.main([kind, *small]) == 0
    assert file.with_suffix(".md").read_text() == page


@long
def test_cells_of_other_models_are_dropped(
    benchmark: Any, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a cell is missing, and end models do not reach what was measured, all cells of their pair go."""
    command, plan = benchmark("trained_pairs"), shortened(benchmark, monkeypatch, "gpt2_tied")
    kinds = benchmark("trained_pairs_kinds").KINDS
    closed = replace(plan, ways=[way for way in plan.ways if way.seen == "none" or way.learns])
    monkeypatch.setitem(kinds, "gpt2_tied", replace(kinds["gpt2_tied"], plan=closed))
    assert command.main(["gpt2_tied", *small]) == 0
    file = tmp_path / "results" / "gpt2_tied.json"
    found = json.loads(file.read_text())
    plain = "3-4 none none simple {}"
    file.write_text(json.dumps({name: cell for name, cell in found.items() if name != f"test {plain}"}))
    measured: list[str] = []
    monkeypatch.setattr(command.TrainedPair, "made", lambda self, job: measured.append(job.name) or found[job.name])
    assert command.main(["gpt2_tied", *small]) == 0
    assert measured == [f"test {plain}"]
    changed = json.loads(file.read_text())
    del changed[f"test {plain}"]
    changed["test 3-4 ends"]["ends"][0] += 0.1
    file.write_text(json.dumps(changed))
    measured.clear()
    assert command.main(["gpt2_tied", *small]) == 0
    assert set(measured) == {name for name in found if name.startswith("test 3-4 ") and not name.endswith(" ends")}
    assert json.loads(file.read_text()) == found


@pytest.mark.parametrize("kind", ["cifar10", "experts"])
def test_what_stands_in_the_table(benchmark: Any, kind: str) -> None:
    """Means over pairs of means over seeds, intervals by Student's t, and the worst of all; losses above the ends."""
    shown, plan = benchmark("trained_pairs_page"), benchmark("trained_pairs_kinds").KINDS[kind].plan
    learned = plan.learned(plan.ways[-1].seen)
    found: dict[str, Any] = {"chosen": {way.key: {} for way in plan.ways}}
    found["equal time"] = {way.key: 700 for way in plan.rivals}
    for place, pair in enumerate(plan.test):
        name = f"test {pair[0]}-{pair[1]}"
        found[f"{name} ends"] = {"ends": [0.5, 0.7], "ensemble": [0.8]}
        for seed in plan.seeds[:2]:
            value = 0.5 + 0.1 * place + 0.02 * seed
            cell = {"accuracy": value, "loss": value, "seconds": 2.0, "barrier": 0.01 * place}
            found[f"{name} {benchmark('ways').what(learned, {}, seed)}"] = cell
    half = 4.303 * 0.1 / math.sqrt(3)
    row = next(line for line in shown.page(kind, found).splitlines() if "| **`learned`** | 2 |" in line)
    if kind == "cifar10":
        assert row.endswith(f"| 61.0 ± {100 * half:.1f} | 50.0 | 0.010 (0.020) | 2 |")
    else:
        assert row.endswith(f"| 0.010 ± {half:.3f} | 0.120 | 0.010 (0.020) | 2 |")
    one, other = plan.test[1]
    missing = {name: cell for name, cell in found.items() if name.endswith(" ends") or f"{one}-{other} " not in name}
    assert "| **`learned`** (2 of 3 pairs) | 2 |" in shown.page(kind, missing)


def test_equal_time_is_by_what_learned_took_on_the_same_inputs(benchmark: Any) -> None:
    """Steps of a distillation stand to those of learned matching as their seconds on the tuning pairs do not."""
    plan = benchmark("trained_pairs_kinds").KINDS["cifar10"].plan
    found: dict[str, Any] = {"chosen": {way.key: {} for way in plan.ways}}
    for way, seconds in ((plan.learned("images"), 30.0), (plan.rivals[0], 20.0)):
        found[f"tuning 1-2 {benchmark('ways').what(way, {}, 0)}"] = {"seconds": seconds}
    assert plan.equal_time(found, plan.rivals[0]) == 900


def test_another_choice_gives_other_steps_at_equal_time(benchmark: Any, tmp_path: Path) -> None:
    """Settings are chosen again once more is tried; a page without a measured test pair has no tables of them."""
    plan, what = benchmark("trained_pairs_kinds").KINDS["gpt2_tied"].plan, benchmark("ways").what
    cells, rival = benchmark("cells").Cells(tmp_path / "gpt2_tied.json"), plan.rivals[0]
    names = {
        (way.key, place): f"tuning 11-12 {what(way, given, 0 if way.learns else None)}"
        for way in plan.ways
        for place, given in enumerate(way.grid)
    }
    cells.found = {name: {"loss": 2.0, "seconds": 10.0} for name in names.values()}
    alone = replace(plan, test=())
    for place, loss, steps in ((0, 2.0, 600), (2, 1.5, 1200)):
        cells.found[names[rival.key, place]] = {"loss": loss, "seconds": 6000 / steps}
        alone.measure(cells, lambda *_: pytest.fail("measured again"))
        assert cells.found["chosen"][rival.key] == rival.grid[place]
        assert cells.found["equal time"][rival.key] == steps
    page = benchmark("trained_pairs_page").page("gpt2_tied", cells.found)
    assert "## Pair by pair" not in page
    assert "Not measured so far: 72 cells of the test pairs" in page
