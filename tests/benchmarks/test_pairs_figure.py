"""The picture of what every way closes: its numbers follow from the cells of the pages."""

import json
from statistics import fmean
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("title", "file", "prefix"), [("Mixtrals", "experts", "test 3-4"), ("ViTs on digits", "digits", "test 303 64")]
)
def test_what_is_closed_follows_from_the_cells(benchmark: Any, title: str, file: str, prefix: str) -> None:
    """By hand from the file: 0 is the plain mean's score, 100 the mean of both end models'."""
    module = benchmark("pairs_figure")
    kinds = {kind.title: kind for kind in module.reached(module.FOLDER)}
    found = json.loads((module.FOLDER / f"{file}.json").read_text(encoding="utf-8"))
    seen, metric = ("texts", "loss") if file == "experts" else ("images", "accuracy")
    given = json.dumps(found["chosen"][f"{seen} learned simple"])
    learned = fmean(found[f"{prefix} {seen} learned simple {given} seed {seed}"][metric] for seed in (0, 1, 2))
    plain = found[f"{prefix} none none simple {{}}"][metric]
    share = 100 * (learned - plain) / (fmean(found[f"{prefix} ends"]["ends"]) - plain)
    way = next(one for one in module.SHOWN_WAYS if one.preset == "learned")
    assert len(kinds[title].closed(way)) == (3 if file == "experts" else 5)
    assert kinds[title].closed(way)[1] == pytest.approx(share)


def test_every_kind_is_drawn(benchmark: Any) -> None:
    module = benchmark("pairs_figure")
    kinds = list(module.reached(module.FOLDER))
    assert len(kinds) == 6
    assert all(kind.closed(way) for kind in kinds for way in module.SHOWN_WAYS if way.then != "regmean")
    assert module.figure(kinds).startswith(b"\x89PNG")
