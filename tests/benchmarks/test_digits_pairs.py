"""The benchmark of two digit models of one size with tiny models: what is chosen, measured and on the page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fusionlab
from tests.benchmarks.examples import digit_images, tiny_digits_model


def test_settings_are_chosen_on_tuning_pairs_alone(
    tmp_path: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every way each setting on each tuning pair, the chosen one on each test pair; then nothing again."""
    command, measures, ways = (benchmark(name) for name in ("digits_pairs", "digits_pairs_cells", "digits_ways"))
    some = {"TUNING": (1,), "TEST": (301, 303), "FURTHER": (5,), "COUNTS": (16,), "OTHER_WIDTHS": (32,)}
    for name, value in some.items():
        monkeypatch.setattr(command, name, value)
    shown = {"tuning": (1,), "test": (301, 303), "further": (5,), "counts": (16,), "others": (32,)}
    monkeypatch.setattr(command, "SHOWN", replace(command.SHOWN, **shown))

    def made(pair: Any, way: Any, given: dict[str, Any], *how: Any) -> dict[str, float]:
        """The last setting is the best on tuning pairs, and the worst on test pairs."""
        place = way.grid.index({name: value for name, value in given.items() if name != "synthetic"}) / len(way.grid)
        return {"accuracy": place if pair.split.name == "tuning" else 1 - place, "loss": 1.0, "seconds": 2.0}

    monkeypatch.setattr(measures.Pair, "_made", made)
    monkeypatch.setattr(measures.Pair, "end_models", lambda _: None)
    cells = command.Cells(tmp_path / "digits.json")
    command.measure(cells, tmp_path)
    assert cells.found["chosen"] == {way.key: way.grid[-1] for way in ways.WAYS}
    assert set(cells.found["equal time"].values()) == {measures.STEPS}
    for way in ways.WAYS:
        of_test = [name for name in cells.found if name.startswith(f"test 301 64 {way.key} {{")]
        of_test = [name for name in of_test if '"synthetic": 0' not in name]
        assert of_test
        assert all(json.dumps(way.grid[-1], sort_keys=True) in name for name in of_test)
    monkeypatch.setattr(measures.Pair, "_made", lambda *_: pytest.fail("measured again"))
    command.measure(command.Cells(tmp_path / "digits.json"), tmp_path)
    command.write_page(tmp_path / "digits.json")
    text = (tmp_path / "digits.md").read_text()
    alone = [name for name in cells.found if '"synthetic": 0' in name]
    assert alone == [
        f'test {pair} 64 images learned simple {{"learning_rate": 0.02, "synthetic": 0}} images 16 seed 0'
        for pair in (301, 303)
    ]
    assert "| nothing | `weights` |  | 33.3 | 33.3 |  | 2.0 |" in text
    assert "| 1,400 images | **`learned`** | 3 | 33.3 | 33.3 |  | 2.0 |" in text
    assert [text.count(f"## {head}") for head in ("At equal time", "Few images", "32 wide")] == [1, 1, 1]
    assert text.count("it is missed on the mean and missed in the worst pair") == 2
    assert "| **`learned`**, without synthetic inputs | 1 | 33.3 | 33.3 |" in text
    assert "| **`learned`** | 3 | 33.3 | 33.3 |" in text
    assert "Not measured" not in text
    (name,) = (
        name for name in cells.found if name.startswith("test 303 32 images learned") and name.endswith("seed 1")
    )
    del cells.found[name]
    assert command.missing(cells.found) == {"32 wide": 1}


def test_ways_are_measured(tmp_path: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models in a step: what is seen, matched, merged, distilled and scored."""
    measures, ways = benchmark("digits_pairs_cells"), benchmark("digits_ways")
    monkeypatch.setattr(measures, "kept_model", tiny_digits_model)
    images = digit_images()
    split = measures.Split("test", None, [{"pixel_values": images["pixel_values"]}], [images])
    pair = measures.Pair(split, (5, 6), 8, benchmark("cells").Cells(tmp_path / "cells.json"), tmp_path)
    pair.end_models()
    assert 0 <= pair.cells.found["test 5 8 ends"]["ensemble"] <= 1
    plain, distilled = ways.WAYS[0], ways.LEARNING["images"][1]
    (transport,) = (way for way in ways.WAYS if way.key == "images none ot")
    found = [
        pair._made(way, given, 0, count, 1)
        for way, given, count in ((plain, {}, None), (transport, transport.grid[-1], None), (distilled, {}, 4))
    ]
    assert [set(cell) for cell in found] == [
        {"accuracy", "loss", "seconds", "barrier"}, {"accuracy", "loss", "seconds"}, {"accuracy", "loss", "seconds"},
    ]  # fmt: skip
    expected = fusionlab.merge(pair.ends)
    assert found[0]["loss"] == pytest.approx(float(expected(**images).loss), rel=1e-5)
    assert len({cell["loss"] for cell in found}) == 3


def test_what_is_missing_is_left_out(benchmark: Any) -> None:
    """A page of the tuning pairs alone; an aim is judged once all pairs are there."""
    page, ways = benchmark("digits_pairs_page"), benchmark("digits_ways")
    shown = page.Shown((1,), (5, 7), (), (0,), 8, (), (16,))
    end = {"accuracy": 0.5, "loss": 1.0, "seconds": 1.0, "barrier": 0.1}
    found: dict[str, Any] = {"chosen": {way.key: {} for way in ways.WAYS}, "equal time": {}}
    for way in ways.WAYS:
        for given in way.grid:
            found[ways.cell_name("tuning", 1, 8, benchmark("ways").what(way, given, 0 if way.learns else None))] = end
    text = page.page(found, shown, {"few images": 6})
    assert "Not measured so far are 6 cells: 6 of few images." in text
    assert "without a descent" not in text
    assert "**the defaults: 50.0**" in text
    (weights,) = (way for way in ways.WAYS if way.key == "none weights simple")
    for pair, accuracy in ((5, 0.7), (7, 0.9)):
        found[ways.cell_name("test", pair, 8, benchmark("ways").what(weights, {}))] = end | {"accuracy": accuracy}
    text = page.page(found, shown, {})
    assert "For `weights` it is reached on the mean and reached in the worst pair." in text
    assert "| nothing | `weights` | 80.0 | 70.0 | 90.0 |" in text


def test_settings_go_to_matching_or_to_merging(benchmark: Any) -> None:
    ways = benchmark("digits_ways")
    _, distilled, _ = ways.LEARNING["images"]
    assert ways.CLOSED[-1].options({"relative": 1.0, "alpha": 0.7}) == ({"relative": 1.0}, {"alpha": 0.7})
    assert ways.LEARNING["images"][0].options({"learning_rate": 0.1}) == ({"learning_rate": 0.1}, {})
    assert distilled.options({"learning_rate": 0.1}) == ({}, {"learning_rate": 0.1})
