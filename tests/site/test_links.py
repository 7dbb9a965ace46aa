"""Links between pages lead somewhere, anchors included, and every page has a place on the site."""

import re
from pathlib import Path

import pytest

from tests.site.hooks import EXAMPLES, LINK, PAGES, ROOT, with_links

TEXTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("examples/*.md")]
)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.*?)\s*#*$", re.MULTILINE)
# Headings that mkdocstrings makes of docstrings stand in no text.
MADE = {"docs/reference/api.md"}


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = sum(one == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", one) is not None for one in found)
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken(path: Path, text: str) -> list[str]:
    """The links of a page to files and anchors that are not there."""
    wrong = []
    for link in LINK.finditer(FENCED.sub("", text)):
        target, anchor = link["target"], (link["anchor"] or "").removeprefix("#")
        if ":" in target:
            continue
        there = path.parent / target if target else path
        if there.is_dir():
            there = there / "README.md"
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there.read_text("utf-8"))):
            wrong.append(link[0])
    return wrong


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    assert broken(path, path.read_text(encoding="utf-8")) == []


def test_a_broken_link_would_be_found() -> None:
    text = "# A b, c\n[x](README.md) [y](nowhere.md) [z](#a-b-c) [v](#a-b) ![w](docs/none.png) [u](https://a.b)\n```\n[t](t.md)\n```\n"
    there = ROOT / "README.md"
    assert broken(there, text.replace("#a-b-c", "#more")) == ["[y](nowhere.md)", "[v](#a-b)", "![w](docs/none.png)"]
    assert anchors("# A `b`, c\n## A b c\n## [Two](x.md) words\n") == {"a-b-c", "a-b-c-1", "two-words"}


def test_every_page_is_in_the_menu() -> None:
    """And every entry of the menu is a page."""
    menu = re.findall(
        r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2], re.MULTILINE
    )
    inside = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sorted(menu) == sorted(inside | set(PAGES.values()) | set(EXAMPLES.values()))


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("index.md", "[a](docs/merging.md#regmean)", "[a](merging.md#regmean)"),
        ("index.md", "[a](docs/results)", "[a](results/README.md)"),
        ("index.md", "![a](docs/images/demo_line.png)", "![a](images/demo_line.png)"),
        ("results/text.md", "[a](../../benchmarks/README.md#reach)", "[a](../benchmarks.md#reach)"),
        ("benchmarks.md", "[a](../docs/performance.md)", "[a](performance.md)"),
        ("faq.md", "[a](../SECURITY.md)", "[a](security.md)"),
        ("index.md", "under [a](Makefile)", "under a"),
        ("faq.md", "[a](#own) [b](https://c.d) [e](nowhere.md)", "[a](#own) [b](https://c.d) [e](nowhere.md)"),
        ("examples/README.md", "[a](own_data.py)", "[a](own_data.md)"),
    ],
)
def test_links_of_the_site(page: str, link: str, there: str) -> None:
    """What lies outside of docs/ has a page of its own, or none."""
    assert with_links(link, page) == there
