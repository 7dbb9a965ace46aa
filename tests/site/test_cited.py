"""Numbers that a page cites stand on the page of results that it names beside them."""

import re
from pathlib import Path

from fusionlab.commands.fuse_output import BROUGHT_BACK, MEASURED
from tests.site.hooks import ROOT

RESULTS = ROOT / "docs" / "results"
LINK = re.compile(r"\(([\w./]+\.md)(?:#[\w-]+)?\)")
# With a point, so that counts and widths are left alone.
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+\.\d+(?!\.?\w)")
CODE = re.compile(r"`[^`]*`")
PAGES = (
    "README.md", "docs/which_method.md", "docs/advise.md", "docs/guides/many_models.md", "docs/guides/little_data.md",
    "docs/start/two_vits.md", "docs/results/README.md", "docs/results/not_better.md", "docs/results/different_seeds.md",
)  # fmt: skip
# What the page itself measured, and says how; versions, aims, a default, and a difference of two numbers beside it.
OWN = {
    "README.md": {"3.11", "3.13", "2.0"},
    "docs/advise.md": {"0.36", "0.55"},
    "docs/start/two_vits.md": {"97.5", "97.2", "98.2", "20.9", "2.742", "96.5", "0.003"},
    "docs/results/not_better.md": {"0.01", "0.002"},
    "docs/results/different_seeds.md": {"0.10", "0.15", "1.5"},
}
# The heading that parts what a page says from the tables that it says it by, before or behind them.
BEHIND = {"docs/results/different_seeds.md": "\n## What it says\n"}
BEFORE = {"docs/advise.md": "\n## By what it judges\n"}


def cited(text: str, page: Path) -> list[tuple[str, set[Path]]]:
    """The numbers of every paragraph, and of every row of a table, with the pages of results that they may stand on.

    A row that names no page has those of its table's head or of the paragraph before the table; a list item its own.
    """

    def named(part: str) -> set[Path]:
        places = {(page.parent / target).resolve() for target in LINK.findall(part)}
        return {place for place in places if place.parent == RESULTS and place.name != "README.md"}

    found, before = [], set()
    for block in re.split(r"\n\s*\n|\n(?=- )", text):
        lines = block.strip().splitlines()
        is_table = bool(lines) and lines[0].startswith("|")
        rows = lines if is_table else [" ".join(lines)]
        head = named(rows[0])
        for row in rows:
            pages = named(row) or head or before
            found += [(number, pages) for number in NUMBER.findall(CODE.sub("", LINK.sub("", row)))]
        before = set() if is_table else head
    return found


def stands(number: str, text: str) -> bool:
    """True if a number is in a text, and no part of another number."""
    return re.search(rf"(?<![\d.]){re.escape(number.lstrip('+'))}(?![\d])", text) is not None


def wrong(text: str, page: str, own: str = "") -> list[tuple[str, str, list[str]]]:
    """The numbers of a text that stand on no page of results named beside them, nor in what is its own."""
    return [
        (page, number, sorted(place.name for place in pages))
        for number, pages in cited(text, ROOT / page)
        if not any(stands(number, known) for known in (own, *(place.read_text(encoding="utf-8") for place in pages)))
    ]


def test_cited_numbers_are_results() -> None:
    """Of every page that cites any, or that says what tables of its own show; some hundreds of them."""
    count = 0
    for page in PAGES:
        says, tables = (ROOT / page).read_text(encoding="utf-8"), ""
        if page in BEHIND:
            tables, says = says.split(BEHIND[page])
        elif page in BEFORE:
            says, tables = says.split(BEFORE[page])
        assert wrong(says, page, " ".join((tables, *OWN.get(page, ())))) == []
        count += len(cited(says, ROOT / page))
    assert count > 400


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
    text += "\nAnd 2.5.\n- so 35.76 ([b](../docs/results/text.md#x), [c](merging.md)), `0.1`"
    place = RESULTS / "text.md"
    assert cited(text, ROOT / "docs" / "a.md") == [("1.5", {place}), ("2.5", set()), ("35.76", {place})]
    found = wrong(text, "docs/a.md")
    assert ("docs/a.md", "2.5", []) in found
    assert "35.76" not in [number for _, number, _ in found]
    assert not stands("5.7", "35.76")
