"""The report is one page that needs nothing else, tells every number, and draws honest conclusions."""

import html
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.report import console_table, write_report
from fusionlab.evaluation.results import UNMATCHED, Curve, Results, Row
from fusionlab.evaluation.verdict import verdict
from fusionlab.evaluation.wording import format_value

ENDS = (0.957, 0.950)


def make(
    scores: dict[str, float], data_sets: dict[str, str] | None = None, names: tuple[str, str] = ("one", "two")
) -> Results:
    rows = []
    for data_set, domain in (data_sets or {"digits": "in"}).items():
        for name, value in zip(names, ENDS, strict=True):
            rows.append(Row((name,), "end model", "-", data_set, domain, "accuracy", value))  # type: ignore[arg-type]
        for matching, value in scores.items():
            rows.append(Row(names, "simple", matching, data_set, domain, "accuracy", value, 1.5))  # type: ignore[arg-type]
    return Results("A merge", names, rows)


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
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
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
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert "script" not in page.tags
    assert not re.search(r"https?:|@import|url\(", path.read_text(encoding="utf-8"))


def test_the_folder_holds_the_data_and_one_picture_for_each_figure_of_the_page(tmp_path) -> None:
    page = parse(write_report(complete(), tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"results.json", "results.csv", "report.html", "plots"}
    pictures = list((tmp_path / "plots").glob("*.png"))
    assert len(page.links) == 2 * len(pictures) == 6


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


def test_only_the_best_merge_of_a_column_is_marked(tmp_path) -> None:
    source = write_report(make({UNMATCHED: 0.2, "paper": 0.3}), tmp_path).read_text(encoding="utf-8")
    assert re.findall(r'<td class="number best"[^>]*>([^<]*)<', source) == ["30.0"]


def test_the_verdict_tells_the_paper_s_case_in_numbers() -> None:
    words = str(verdict(complete()))
    assert "plain averaging keeps 12.3 % accuracy" in words
    assert "matched by `paper` the merge reaches 18.1 %" in words
    assert "the end models have 95.7 and 95.0 %" in words
    assert "77.6 points worse than the best end model" in words
    assert "rises from 2.720 to 2.920" in words


@pytest.mark.parametrize(
    ("score", "opening"),
    [(0.181, "Matching helps"), (0.1232, "Matching makes no difference"), (0.100, "Matching does not help")],
)
def test_the_verdict_is_honest_about_the_effect(score: float, opening: str) -> None:
    assert verdict(make({UNMATCHED: 0.123, "paper": score})).headline.startswith(opening)


def test_a_small_loss_counts_as_help() -> None:
    rows = [Row(("a", "b"), "simple", m, "d", "in", "loss", v) for m, v in ((UNMATCHED, 2.0), ("paper", 1.0))]
    assert verdict(Results("t", ("a", "b"), rows)).headline.startswith("Matching helps")


def test_in_and_out_of_domain_are_told_apart() -> None:
    results = make({UNMATCHED: 0.5, "paper": 0.6}, {"digits": "in"})
    results.rows.extend(make({UNMATCHED: 0.5, "paper": 0.4}, {"svhn": "out"}).rows)
    headline = verdict(results).headline
    assert "helps on digits" in headline
    assert "does not help on svhn" in headline


def test_many_data_sets_are_told_as_their_mean() -> None:
    words = str(verdict(make({UNMATCHED: 0.25, "paper": 0.5}, {"a": "out", "b": "out", "c": "out"})))
    assert "average over the 3 data sets out of domain" in words
    assert "25.0 %" in words


def test_without_data_only_distances_are_judged() -> None:
    results = Results("t", ("a", "b"), distances=[Distance("b", "a", "paper", "ffn", 0, 4.0, 3.996)])
    words = str(verdict(results))
    assert "no merge was evaluated" in words
    assert "−0.10 %" in words  # noqa: RUF001


@pytest.mark.parametrize("results", [Results("t", ()), make({}), make({"paper": 0.3}), make({UNMATCHED: 0.3})])
def test_incomplete_results_still_make_a_page_and_a_table(tmp_path, results: Results) -> None:
    parse(write_report(results, tmp_path))
    Console(file=io.StringIO()).print(console_table(results))


def test_the_console_table_fits_80_characters_and_breaks_no_number() -> None:
    matchings = {f"a matching with a very long name, number {index}": 0.1 + index / 50 for index in range(10)}
    data_sets = {"digits": "in", "street view house numbers": "out", "mnist": "out"}
    stream = io.StringIO()
    Console(file=stream, width=80).print(console_table(make({UNMATCHED: 0.123, **matchings}, data_sets)))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "12.3" in text
    assert text.count("28.0 *") == 3
