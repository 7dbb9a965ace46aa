"""The page of Python names what can be imported, and all that is public at the top."""

import importlib
import re

import fusionlab
from tests.site.hooks import ROOT


def test_headings_are_what_they_show() -> None:
    """What a heading says to import is the object whose docstring stands below it."""
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    pairs = re.findall(r"^::: (\S+)\n    options:\n      heading: (\S+)\n", text, re.MULTILINE)
    assert len(pairs) == text.count(":::")
    for source, heading in pairs:
        found = [
            getattr(importlib.import_module(path), name)
            for path, _, name in (p.rpartition(".") for p in (source, heading))
        ]
        assert found[0] is found[1], heading
    assert {f"fusionlab.{name}" for name in fusionlab.__all__} <= {heading for _, heading in pairs}
