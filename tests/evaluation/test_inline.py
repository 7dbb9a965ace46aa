"""Figures inside a page: in its colours, with names of their own, text as text."""

import pathlib
import re
from xml.etree import ElementTree

from matplotlib.figure import Figure

from fusionlab.evaluation import inline
from fusionlab.evaluation.drawing import COLOURS, INK
from fusionlab.evaluation.inline import svg, width_of


def drawn(name: str, label: str = "a") -> str:
    figure = Figure(figsize=(4, 2))
    panel = figure.subplots()
    panel.plot([0, 1], [1, 0], color=COLOURS[1], marker="o", label=label)
    panel.set_title(label, color=INK)
    return svg(figure, name)


def test_colours_are_those_of_the_page() -> None:
    found = drawn("one")
    assert "var(--tone-1)" in found
    assert "var(--ink)" in found
    assert COLOURS[1] not in found
    page = (pathlib.Path(inline.__file__).parent / "report.css").read_text(encoding="utf-8")
    for name in set(re.findall(r"var\((--[\w-]+)\)", found)):
        # In light and in dark mode.
        assert page.count(f"{name}:") == 2


def test_names_inside_do_not_clash_and_lead_nowhere_else() -> None:
    """Every reference is to something in the same figure; two figures share no name."""
    first, second = drawn("one"), drawn("two")
    names = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, second)]
    assert not names[0] & names[1]
    for text, own in zip((first, second), names, strict=True):
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
        assert used
        assert used <= own
    assert first == drawn("one")
    assert "http" not in first


def test_text_is_text_and_never_markup() -> None:
    """Escaped, and to be found and read aloud, not drawn as outlines."""
    label = "</svg><b>--> & <script>"
    root = ElementTree.fromstring(drawn("one", label))
    assert label in "".join(root.itertext())
    assert {element.tag for element in root.iter()}.isdisjoint({"b", "script"})
    assert root.attrib["aria-hidden"] == "true"


def test_width() -> None:
    assert width_of(Figure(figsize=(5, 2))) == 480
