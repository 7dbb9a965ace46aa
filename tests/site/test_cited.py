"""Numbers that a page cites stand on the page of results that it names beside them."""

import re

from fusionlab.commands.fuse_output import BROUGHT_BACK, MEASURED
from tests.site.hooks import ROOT

RESULTS = re.compile(r"\((?:\.\./)*(results/\w+\.md)\)")
# With a point, so that counts and widths are left alone.
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+\.\d+(?!\.?\w)")
CODE = re.compile(r"`[^`]*`")
PAGES = ("which_method.md", "guides/many_models.md", "guides/little_data.md", "start/two_vits.md")
# What the page itself measured, and says how.
OWN = {"start/two_vits.md": {"97.5", "97.2", "98.2", "20.9", "2.742", "96.5", "0.003"}}


def cited(text: str) -> list[tuple[str, set[str]]]:
    """The numbers of every paragraph, and of every row of a table, with the pages of results that they may stand on.

    A row that names no page has those of its table's head or of the paragraph before the table; a list item its own.
    """
    found, before = [], set()
    for block in re.split(r"\n\s*\n|\n(?=- )", text):
        lines = block.strip().splitlines()
        is_table = bool(lines) and lines[0].startswith("|")
        rows = lines if is_table else [" ".join(lines)]
        head = set(RESULTS.findall(rows[0]))
        for row in rows:
            pages = set(RESULTS.findall(row)) or head or before
            found += [(number, pages) for number in NUMBER.findall(CODE.sub("", RESULTS.sub("", row)))]
        before = set() if is_table else head
    return found


def test_cited_numbers_are_results() -> None:
    """Some eighty of them."""
    count = 0
    for page in PAGES:
        for number, pages in cited((ROOT / "docs" / page).read_text(encoding="utf-8")):
            if number in OWN.get(page, ()):
                continue
            texts = [(ROOT / "docs" / there).read_text(encoding="utf-8") for there in pages]
            shown = rf"(?<![\d.]){re.escape(number.lstrip('+'))}(?![\d])"
            assert any(re.search(shown, text) for text in texts), (page, number, pages)
            count += 1
    assert count > 80


def test_what_fuse_says_of_a_polish_is_the_curve() -> None:
    """Each point of the page's curve, and no other."""
    page = (ROOT / "docs" / "results" / "same_base.md").read_text(encoding="utf-8")
    _, curve = page.split("### What a polish brings back")
    points = re.findall(r"^\| (\d+) \|.*\| (\d+) % \|$", curve, re.MULTILINE)
    assert {int(inputs): int(percent) for inputs, percent in points} == BROUGHT_BACK
    title = page.splitlines()[0].removeprefix("# ")
    assert f'"{title}"' in MEASURED, "the page is cited by its title"


def test_a_number_that_is_no_result_would_be_found() -> None:
    text = "From [here](results/text.md):\n\n| | a |\n|---|---|\n| x | 1.5 |\n"
    text += "\nAnd 2.5.\n- so 3.5 ([b](../results/b.md)), `0.1`"
    assert cited(text) == [("1.5", {"results/text.md"}), ("2.5", set()), ("3.5", {"results/b.md"})]
