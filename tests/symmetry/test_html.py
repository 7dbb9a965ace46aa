"""Tables for notebooks: text stays text, and what is long stays short."""

import torch

import fusionlab
from fusionlab.symmetry.html import html_table
from tests.commands.small import vit


def test_text_is_escaped() -> None:
    found = html_table("a < b", ["<i>"], [["&", 3]])
    assert "<caption>a &lt; b</caption>" in found
    assert "&lt;i&gt;" in found
    assert "<td>&amp;</td><td>3</td>" in found


def test_alignments_and_blueprints_are_short() -> None:
    """One row for the spaces of a role and group, whatever the number of layers; what was changed is counted."""
    found = fusionlab.blueprint(vit(0))
    alignment = fusionlab.Alignment(found, {"layers.0.ffn": torch.randperm(32)})
    for shown in (found, alignment):
        assert len(repr(shown)) < 200
        assert shown._repr_html_().count("<tr>") == 1 + len(found.by_role())
    assert "<td>2</td><td>1</td>" in alignment._repr_html_()
    assert sum(map(len, found.by_role().values())) == len(found.spaces)
