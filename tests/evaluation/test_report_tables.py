"""Tables of the report and of the console: columns, lines, marks, and their width."""

import io
import re
from dataclasses import replace

from rich.console import Console

from fusionlab.evaluation.disagreement import Example
from fusionlab.evaluation.page import page
from fusionlab.evaluation.report import console_table, write_report
from fusionlab.evaluation.results import UNMATCHED, Curve, Results, Row
from fusionlab.evaluation.verdict import verdict
from tests.evaluation.examples import judged
from tests.evaluation.merges import PAPER, PLAIN
from tests.evaluation.reported import make


def test_only_the_best_merge_of_a_column_is_marked(tmp_path) -> None:
    source = write_report(make({UNMATCHED: 0.2, "paper": 0.3}), tmp_path).read_text(encoding="utf-8")
    assert re.findall(r'<td class="number best"[^>]*>([^<]*)<', source) == ["30.0"]


def test_marks_and_times_are_explained_where_there_are_any() -> None:
    """Without a merge there are neither, and nothing to choose the best of with one."""
    times, marks = "Time is for matching and merging", "marks the best merge"
    for scores, told in (({}, (False, False)), ({"paper": 0.3}, (True, False)), ({"a": 0.3, "b": 0.2}, (True, True))):
        results = make(scores)
        text = page(results, verdict(results), [])
        assert (times in text, marks in text) == told


def head_of_results(source: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Width and label of every place in the table of results, and the metrics below them."""
    head = source[source.index('<table class="results">') : source.index("</thead>")]
    places = re.findall(r'<th class="group" colspan="(\d+)"[^>]*>([^<]*)<', head)
    return places, re.findall(r'<th class="number" scope="col">([^<]*)<', head)


def test_columns_stand_under_the_data_set_they_are_of() -> None:
    """As wide as it has metrics, in the order of the numbers below."""
    results = make({"paper": 0.3}, {"digits": "in", "mnist": "out"})
    losses = [Row(row.models, row.method, row.matching, "mnist", "out", "loss", 1.0) for row in results.rows[3:]]
    results.rows.extend(losses)
    places, metrics = head_of_results(page(results, verdict(results), []))
    labels = [(width, label.replace("\N{NO-BREAK SPACE}", " ")) for width, label in places]
    assert labels == [("1", "digits (in domain)"), ("2", "mnist (out of domain)")]
    assert metrics == ["accuracy (%)", "accuracy (%)", "loss"]


def lines_of_results(source: str) -> list[list[str]]:
    """What heads each line of the table of results, and its words."""
    body = source[source.index('<table class="results">') :]
    return [
        [re.sub("<[^>]*>", "", cell).strip() for cell in re.findall(r"<th.*?</th>|<td>.*?</td>", line, re.DOTALL)]
        for line in re.findall("<tr.*?</tr>", body[body.index("<tbody>") : body.index("</tbody>")], re.DOTALL)
    ]


def test_lines_are_named_by_what_tells_them_apart() -> None:
    """End models by their names, merges by matching and method, and by their models where those differ."""
    results = make({UNMATCHED: 0.2, "paper": 0.3})
    ends = [["one", "end model"], ["two", "end model"]]
    merges = [["unmatched", "simple"], ["paper", "simple"]]
    assert lines_of_results(page(results, verdict(results), [])) == [*ends, *merges]
    results.rows.append(Row(("two", "three"), "simple", "paper", "digits", "in", "accuracy", 0.4))
    results.rows.append(Row(("one", "two"), "ensemble", "-", "digits", "in", "accuracy", 0.5))
    named = [[*line, ""] for line in ends] + [[*line, "one + two"] for line in merges]
    found = lines_of_results(page(results, verdict(results), []))
    assert sorted(found) == sorted([*named, ["paper", "simple", "two + three"], ["ensemble", "ensemble", ""]])


def test_the_console_table_fits_80_characters_and_breaks_no_number() -> None:
    matchings = {f"a matching with a very long name, number {index}": 0.1 + index / 50 for index in range(10)}
    data_sets = {"digits": "in", "street view house numbers": "out", "mnist": "out"}
    stream = io.StringIO()
    Console(file=stream, width=80).print(console_table(make({UNMATCHED: 0.123, **matchings}, data_sets)))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "12.3" in text
    assert text.count("28.0 *") == 3


def test_the_merge_that_is_kept_is_named_at_the_table() -> None:
    """The mark is the best one's, which need not be it."""
    results = judged({("ties", UNMATCHED): 0.3, PLAIN: 0.5}, kept=("ties", UNMATCHED))
    words = "The merge that is kept, in the folder <code>merged</code>: <code>ties</code> unmatched."
    text = re.sub(r"\s+", " ", page(results, verdict(results), []))
    assert words.replace(" ", "") in text.replace(" ", "")
    grid = replace(results, kept=None)
    assert "in the folder" not in page(grid, verdict(grid), [])


def shown_barriers(results: Results) -> tuple[list[str], str]:
    """The cells of the barrier's column in the console table, if there is one, and what stands below the table."""
    table = console_table(results)
    found = [column for column in table.columns if str(column.header) == "barrier"]
    cells = [str(cell).strip(" *") for column in found for cell in column.cells]
    return cells, str(table.caption or "")


def test_a_barrier_stands_beside_plain_means_alone() -> None:
    """No other merge lies on the line; where there is no plain mean, it stands below."""
    ties, matched = ("ties", UNMATCHED), ("ties", "paper")
    lines = [
        Curve("two", "one", matching, "digits", "in", (0.0, 0.5, 1.0), (0.1, top, 0.1), (0.9, 0.5, 0.9))
        for matching, top in ((UNMATCHED, 2.1), ("paper", 0.4))
    ]
    both = replace(judged({ties: 0.3, PLAIN: 0.2, matched: 0.4, PAPER: 0.5}), curves=lines)
    labels = list(console_table(both).columns[0].cells)
    cells, caption = shown_barriers(both)
    told = {str(label): cell for label, cell in zip(labels, cells, strict=True) if cell}
    assert told == {"simple: unmatched": "2.000", "simple: paper": "0.300"}
    assert "barrier" not in caption
    cells, caption = shown_barriers(replace(judged({ties: 0.3, matched: 0.4}), curves=lines))
    assert cells == []
    assert "barrier of the straight line between the models: unmatched 2.000, paper 0.300" in caption


def test_past_three_data_sets_the_console_table_shows_means_by_domain() -> None:
    """Of whole lines only: a merge that was not tested on all of them has none."""
    rows = [
        Row(("one", "two"), "simple", matching, data_set, domain, "accuracy", value + more)  # type: ignore[arg-type]
        for data_set, domain, value in (("a", "in", 0.1), ("b", "out", 0.3), ("c", "out", 0.5), ("d", "out", 0.7))
        for matching, more in ((UNMATCHED, 0.0), ("paper", 0.05))
    ]

    def shown(rows: list[Row]) -> dict[str, list[str]]:
        columns = console_table(Results("t", ("one", "two"), rows)).columns[1:]
        return {
            " ".join(str(column.header).split("\n")): [str(cell).strip() for cell in column.cells] for column in columns
        }

    within, beyond = "in domain mean of 1 accuracy (%)", "out of domain mean of 3 accuracy (%)"
    assert shown(rows) == {within: ["10.0", "15.0 *"], beyond: ["50.0", "55.0 *"]}
    assert shown(rows[:-1])[beyond] == ["50.0", ""]
    assert shown(rows[:6]) == {
        "a in domain accuracy (%)": ["10.0", "15.0 *"],
        "b out of domain accuracy (%)": ["30.0", "35.0 *"],
        "c out of domain accuracy (%)": ["50.0", "55.0 *"],
    }


def test_examples_of_several_data_sets_say_of_which_they_are() -> None:
    """A text does not tell; of one data set it is said above the table."""
    results = judged({PLAIN: 0.5})
    for sets in (["reviews"], ["reviews", "tweets"]):
        found = replace(results, examples=[Example(name, "a text", None, "b", ("b", "a", "a")) for name in sets])
        table = page(found, verdict(found), []).partition('<table class="examples">')[2].partition("</table>")[0]
        assert ("data set</th>" in table) == ("<td>tweets</td>" in table) == (len(sets) > 1)
