"""The options of a search, and packages that are not there."""

import importlib.util
from typing import Any

import pytest

from fusionlab.errors import InputError
from fusionlab.search import SearchOptions


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"trials": 0}, "search trials is 0; expected at least 1"),
        ({"layers": 0}, "search layers is 0; expected at least 1"),
        ({"sampler": "grid"}, "search sampler is 'grid'; expected tpe or cmaes"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SearchOptions(**options)


def test_a_missing_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any work: when the options are made."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cmaes" else object())
    assert SearchOptions().sampler == "tpe"
    with pytest.raises(InputError, match=r"'cmaes', which is not installed; pip install 'fusionlab\[search\]'"):
        SearchOptions(sampler="cmaes")
