"""The benchmark of merge methods with tiny models: what is chosen, measured, written and drawn."""

from pathlib import Path
from typing import Any

import pytest

import fusionlab
from tests.benchmarks.examples import digit_images, tiny_digits_model


def test_twins_of_a_matching_are_merged_by_a_method(
    tmp_path: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method after every matching, none measured twice; a plain mean is that of the same matching elsewhere."""
    command, words = benchmark("merge_methods"), benchmark("merge_methods_page")
    measures = benchmark("digits_pairs_cells")
    monkeypatch.setattr(measures, "kept_model", tiny_digits_model)
    monkeypatch.setattr(command, "STEPS", 1)
    images = digit_images()
    split = measures.Split("test", None, [{"pixel_values": images["pixel_values"]}], [images])
    one = measures.Pair(split, (5, 6), 8, benchmark("cells").Cells(tmp_path / "cells.json"), tmp_path)
    settings: dict[str, dict[str, Any]] = {name: {} for name in words.MATCHINGS} | {"weights": {"relative": 1.0}}
    merges = command.Merges(one, settings, one.cells)
    for matching in words.MATCHINGS:
        for method, grid in words.METHODS.items():
            merges.measure(matching, method, grid[-1])
    assert len(one.cells.found) == len(words.MATCHINGS) * len(words.METHODS)
    twins = fusionlab.align(one.ends, anchor=1, preset="weights", relative=1.0)
    expected = float(fusionlab.merge(twins)(**images).loss.detach())
    assert one.cells.found["test 5 8 weights simple {}"]["loss"] == pytest.approx(expected, rel=1e-5)
    assert len({cell["loss"] for cell in one.cells.found.values()}) > len(words.METHODS)
    monkeypatch.setattr(fusionlab, "merge", lambda *_, **__: pytest.fail("measured again"))
    merges.measure("none", "simple", {})


def test_settings_of_matching_are_those_of_the_plain_mean(benchmark: Any) -> None:
    command, ways = benchmark("merge_methods"), benchmark("digits_ways")
    chosen = {way.key: {"of": way.key} for way in ways.WAYS}
    assert command.settings_of({"chosen": chosen}) == {
        "none": {"of": "none none simple"},
        "paper": {"of": "none paper simple"},
        "weights": {"of": "none weights simple"},
        "learned": {"of": "images learned simple"},
    }


def test_hyperparameters_are_chosen_on_tuning_pairs_alone(
    tmp_path: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last setting is the best on tuning pairs and stands in the tables, where it is the worst of test pairs."""
    command, words = benchmark("merge_methods"), benchmark("merge_methods_page")
    measures, ways = benchmark("digits_pairs_cells"), benchmark("digits_ways")
    monkeypatch.setattr(command, "TUNING", (1,))
    monkeypatch.setattr(command, "TEST", (301, 303, 305))

    def measure(merges: Any, matching: str, method: str, given: dict[str, Any]) -> None:
        split, seed, width = merges.pair.split.name, merges.pair.seeds[0], merges.pair.width
        name = words.cell_name(split, seed, width, matching, method, given)
        best = (1 + words.METHODS[method].index(given)) / len(words.METHODS[method])
        value = best if split == "tuning" else 0.5 if matching == "learned" and method == "simple" else 0.25
        merges.cells.keep(name, {"accuracy": value, "loss": 1.0, "seconds": 2.0})

    monkeypatch.setattr(command.Merges, "measure", measure)
    ends = {"ends": [0.75, 0.5], "ensemble": 1.0}
    monkeypatch.setattr(measures.Pair, "end_models", lambda one: one.cells.keep(one.name("ends"), ends))
    digits, cells = (benchmark("cells").Cells(tmp_path / f"{name}.json") for name in ("digits", "merging"))
    digits.keep("chosen", {way.key: {} for way in ways.WAYS})
    command.measure(cells, digits, tmp_path)
    assert all(
        cells.found["chosen"][matching][method] == grid[-1]
        for matching in words.MATCHINGS
        for method, grid in words.METHODS.items()
    )
    assert command.missing(cells.found) == 0
    command.write(cells, tmp_path)
    text = (tmp_path / "merging.md").read_text()
    assert "The end models reach 62.5 ± 0.0 on average, their ensemble 100.0 ± 0.0." in text
    row = "| `simple` | 25.0 ± 0.0 (25.0) | 25.0 ± 0.0 (25.0) | 25.0 ± 0.0 (25.0) | 50.0 ± 0.0 (50.0) | 2.00 |"
    assert text.count(row) == len(command.WIDTHS)
    assert "`simple` after `learned` (50.0); the plain mean goes from 25.0 to 25.0, 25.0, 50.0." in text
    assert "| `regmean` | paper | the defaults: 33.3; `alpha` 0.7: 66.7; **`alpha` 0.99: 100.0** |" in text
    assert (tmp_path / "merging.png").read_bytes().startswith(b"\x89PNG")
    (name,) = (name for name in cells.found if name.startswith("test 303 128 learned simple"))
    del cells.found[name]
    command.write(cells, tmp_path)
    assert "Not measured so far are 1 cells." in (tmp_path / "merging.md").read_text()
