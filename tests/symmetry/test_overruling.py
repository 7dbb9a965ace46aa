"""A description overrules inference: the section of docs/architectures.md, done to the letter."""

import re
from pathlib import Path
from typing import Any

import pytest

from fusionlab.symmetry import Blueprint, any_model, blueprint
from fusionlab.symmetry.architectures import descriptions
from fusionlab.symmetry.architectures.descriptions import Descriptions
from tests.families.harness import Case, check_random_alignment
from tests.symmetry.written import written

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"


def listings() -> list[str]:
    """The code of the section."""
    found = re.search(r"^## Overruling(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r"^```python\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)


def spaces(description: Blueprint) -> dict[str, tuple[Any, ...]]:
    return {name: (space.group, space.role, space.layer, space.index) for name, space in description.spaces.items()}


def test_distilbert_written_down(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The description is used, is exact on the real class, and is the one that the tests compare with."""
    looked_at, description, shown = listings()
    ours = Descriptions()
    monkeypatch.setattr(descriptions, "DESCRIBED", ours)
    monkeypatch.setattr(any_model, "DESCRIBED", ours)
    names: dict[str, Any] = {"Case": Case, "__name__": "own"}
    exec(looked_at, names)
    printed = capsys.readouterr().out
    assert "distilbert.transformer.layer.0.attention.q_lin.weight (24, 24)\n" in printed
    assert "ffn.lin1.weight (20, 24)\n" in printed
    exec(description, names)
    exec(f"case = {shown}", names)

    case, model = names["case"], names["case"].build()
    found, known = blueprint(model), written(model)
    assert ours.names == ("distilbert",)
    assert found.origin == "written in own.py"
    assert found.parameters == known.parameters
    assert spaces(found) == spaces(known)
    assert found.untouched() == case.untouched
    check_random_alignment(case, folded=False)
