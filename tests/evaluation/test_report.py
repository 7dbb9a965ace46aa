"""The report is one page that needs nothing else, tells every number, and draws honest conclusions."""

import html
import io
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.page import Picture, page
from fusionlab.evaluation.report import console_table, write_report
from fusionlab.evaluation.results import UNMATCHED, Curve, Results, Row
from fusionlab.evaluation.verdict import Verdict, verdict
from fusionlab.evaluation.wording import format_value
from tests.evaluation.examples import judged
from tests.evaluation.reported import make


def complete(names: tuple[str, str] = ("one", "two")) -> Results:
    results = make({UNMATCHED: 0.123, "paper": 0.181}, names=names)
    for matching, height in ((UNMATCHED, 2.72), ("paper", 2.92)):
        curve = Curve(
            names[1], names[0], matching, "digits", "in", (0, 0.5, 1), (0.1, 0.1 + height, 0.1), (0.9, 0.2, 0.8)
        )
        results.curves.append(curve)
    results.distances.append(Distance(names[1], names[0], "paper", "ffn", 0, 38.84, 27.87))
    results.settings.update({"command": "fusionlab fuse --ckpts one two && echo '<done>'", "seed": "17"})
    results.notes.append("Probes were <synthetic>.")
    return results


class Page(HTMLParser):
    """Checks that tags nest, and collects what is linked and what is said."""

    VOID = ("meta", "img", "source", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.elements: list[tuple[str, list[str]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.elements.append((tag, [name for name, _ in attrs]))
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.open == []
    return page


def test_the_page_is_well_formed_and_needs_no_network_and_no_script(tmp_path) -> None:
    path = write_report(complete(), tmp_path / "out")
    page = parse(path)
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert "script" not in page.tags
    assert not re.search(r"https?:|@import|url\((?!#)", path.read_text(encoding="utf-8"))


def test_the_folder_holds_the_data_and_one_picture_for_each_figure_of_the_page(tmp_path) -> None:
    page = parse(write_report(complete(), tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"results.json", "results.csv", "report.html", "plots"}
    pictures = list((tmp_path / "plots").glob("*.png"))
    assert [tag for tag, _ in page.elements].count("svg") == 2 * len(pictures) == 6


def test_the_page_tells_every_number(tmp_path) -> None:
    results = complete()
    text = parse(write_report(results, tmp_path)).text
    for row in results.all_rows():
        assert format_value(row.metric, row.value) in text
    for curve in results.curves:
        for loss, accuracy in zip(curve.loss, curve.score, strict=True):
            assert format_value("loss", loss) in text
            assert format_value("accuracy", accuracy) in text
    for words in ("38.84", "27.87", "−28.2 %", results.settings["command"], "17", *results.notes):  # noqa: RUF001
        assert words in text


def test_names_from_outside_are_text_and_never_markup(tmp_path) -> None:
    results = complete(names=("<b>one</b>", 'two"><script>alert(1)</script>'))
    path = write_report(results, tmp_path)
    page = parse(path)
    assert page.tags.isdisjoint({"b", "script"})
    assert "<b>one" not in path.read_text(encoding="utf-8")
    assert html.escape("<b>one</b>") in path.read_text(encoding="utf-8")
    assert "<b>one</b>" in page.text


def hostile(name: str) -> str:
    """A name that would close an element or an attribute, open others, and run a script, were it taken as markup."""
    return f"</p></td></code><b class='x'>{name}</b>\"><script>alert('{name}')</script><img src=x onerror=\"{name}"


def test_no_text_of_any_origin_injects_markup() -> None:
    """Every text that the page shows: each stands there as it is, and adds no element and no attribute."""

    def told(say: Callable[[str], str]) -> Page:
        found = judged({("simple", UNMATCHED): 0.3, ("simple", "paper"): 0.5})
        names = (say("first model"), say("second model"))

        def row(method: str, matching: str, metric: str, models: tuple[str, ...] = names) -> Row:
            return Row(models, method, matching, say("data set"), "in", metric, 0.5)

        ends = [row("end model", "-", "accuracy", (name,)) for name in names]
        merges = [row(say("method"), matching, "accuracy") for matching in (UNMATCHED, say("matching"))]
        compared = [
            replace(one, models=names, method=say("method"), matching=say("matching"), data_set=say("data set"))
            for one in found.comparisons
        ]
        curve = Curve(names[1], names[0], say("matching"), say("data set"), "in", (0, 1), (0, 1), (1, 0))
        results = Results(
            say("title"),
            names,
            [*ends, *merges, row(say("method"), say("matching"), "loss", (*names, say("third model")))],
            [curve],
            [Distance(names[1], names[0], say("matching"), say("role"), layer, 2.0, 1.0, 3.0) for layer in (0, 1)],
            {say("setting"): say("value"), "command": say("command")},
            [say("note")],
            compared,
        )
        pictures = [
            Picture("<svg></svg>", "<svg></svg>", (1, 1), say("picture"), say("caption"), say("caption"), kind)
            for kind in ("scores", "line", "distance")
        ]
        text = Page()
        text.feed(page(results, Verdict(say("headline"), (f"It is `{say('code')}` " + say("paragraph"),)), pictures))
        text.close()
        assert text.open == []
        return text

    said: set[str] = set()

    def gently(name: str) -> str:
        said.add(name)
        return name

    plain, attacked = told(gently), told(hostile)
    assert attacked.elements == plain.elements
    for name in said:
        assert name in plain.text
        assert hostile(name) in attacked.text


def test_what_all_lines_share_is_told_once_above_the_table() -> None:
    """Words only: numbers that agree stay in the table, as does everything where there is one line."""
    results = complete()
    results.curves[1] = replace(results.curves[1], loss=results.curves[0].loss)

    def barriers() -> tuple[str, list[str]]:
        """What is told above the table of barriers, and its heads."""
        part = page(results, verdict(results), []).split("<h3>Barriers</h3>")[1].split("</thead>")[0]
        above = re.findall('<p class="legend">([^<]*)</p>', part)
        return "".join(above).replace("\N{NO-BREAK SPACE}", " "), re.findall("<th [^>]*>([^<]*)<", part)

    numbers = ["barrier (loss)", "loss half way", "accuracy (%), half way"]
    assert barriers() == ("anchor to model: one to two, data set: digits (in domain)", ["matching", *numbers])
    results.curves[1] = replace(results.curves[1], data_set="mnist")
    assert barriers() == ("anchor to model: one to two", ["data set", "matching", *numbers])
    del results.curves[1]
    assert barriers() == ("", ["anchor to model", "data set", "matching", *numbers])


def test_the_page_tells_what_matching_changes() -> None:
    """Change and interval of every comparison, and how many examples it is of; by every metric in a fold."""
    results, text = judged({("simple", UNMATCHED): 0.3, ("simple", "paper"): 0.5}), Page()
    text.feed(page(results, verdict(results), []))
    accuracy, loss = sorted(results.comparisons, key=lambda found: found.metric)
    assert accuracy.lower is not None
    assert accuracy.upper is not None
    assert loss.lower is not None
    assert "+20.0" in text.text
    assert f"+{100 * accuracy.lower:.1f} to +{100 * accuracy.upper:.1f}" in text.text
    assert "400 examples" in text.text
    assert f"\N{MINUS SIGN}{-loss.lower:.3f} to" in text.text
    assert "By every metric" in text.text
    without = judged({("simple", "paper"): 0.5})
    assert "What matching changes" not in page(without, verdict(without), [])


INCOMPLETE = [Results("t", ()), make({}), make({"paper": 0.3}), make({UNMATCHED: 0.3})]


@pytest.mark.parametrize("results", INCOMPLETE, ids=["nothing", "end models", "matched", "unmatched"])
def test_incomplete_results_still_make_a_page_and_a_table(tmp_path, results: Results) -> None:
    """Which say what there is, in as many lines, and what is missing."""
    text = parse(write_report(results, tmp_path)).text
    assert verdict(results).headline.replace("`", "").replace(" %", "\N{NO-BREAK SPACE}%") in text
    stream = io.StringIO()
    Console(file=stream, width=80).print(console_table(results))
    for row in results.rows:
        assert format_value(row.metric, row.value) in text
        assert format_value(row.metric, row.value) in stream.getvalue()
    assert stream.getvalue().count("\n│") == len({(*row.models, row.matching) for row in results.rows})
