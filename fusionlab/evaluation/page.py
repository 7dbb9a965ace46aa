"""A report as one self-contained web page.

What it says is worked out here and in `page_tables`; how it is marked up stands in ``report.html``, a Jinja2 template
with autoescape, and how it looks in ``report.css``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fusionlab.evaluation.comparison_table import (
    EXPLAINED,
    EXPLAINED_GROUPS,
    HEADS,
    TEXTS,
    comparison_lines,
    group_lines,
)
from fusionlab.evaluation.page_tables import PlainTable, barrier_tables, distance_tables, plain_table, score_table
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.verdict import Verdict

GLOSSARY = {
    "end model": "One of the models to be merged.",
    "anchor": "The end model (or the mean, for many models) that the others are matched to.",
    "matching": "Moving a model into another model's basis: its weights change, what it computes does not. "
    "The names of the matchings say which parts of the network took part.",
    "unmatched": "Merged as the models are, without matching: the reference for every matching.",
    "merge": "One model made from several; method “simple” is the plain mean of their weights.",
    "barrier": "How far the loss on the straight line between two models rises above the straight line between "
    "their own losses. 0 means that every weighted mean of the two is as good as they are.",
    "distance": "Euclidean distance between the weights of a model and those of the anchor.",
    "gauge": "One of the ways to write down the same function, such as norm gains folded into the maps behind them. "
    "Some matchings bring every model into the same gauge first. That changes distances without matching anything, so "
    "the effect of matching is counted from there.",
    "95 % interval": "Where the number would lie on other examples of the same kind: of 100 such intervals about 95 "
    "hold it. Found by drawing the test examples anew 1,000 times (bootstrap).",
    "in domain, out of domain": "Whether the end models were trained on this data set, or on other data.",
}


@dataclass(frozen=True)
class Picture:
    """A figure on the page, and its words.

    Attributes:
        wide: the markup for wide screens, by `svg`.
        narrow: the same for narrow ones.
        widths: of both, in pixels.
        title: what is seen.
        caption: what to look for in it.
        told: what it tells, in words, for who cannot see it.
        kind: ``"scores"``, ``"line"`` or ``"distance"``.
    """

    wide: str
    narrow: str
    widths: tuple[int, int]
    title: str
    caption: str
    told: str
    kind: str


def page(results: Results, verdict: Verdict, pictures: Sequence[Picture]) -> str:
    """The whole page as HTML, with its style and its pictures inside; it needs no network and no script.

    Args:
        results: what was measured.
        verdict: what it means; names in backticks are shown as code.
        pictures: in the order in which those of a kind are shown.
    """
    by_kind: dict[str, list[Picture]] = {"scores": [], "line": [], "distance": []}
    for picture in pictures:
        by_kind[picture.kind].append(picture)
    return (
        _environment()
        .get_template("report.html")
        .render(
            results=results,
            verdict=verdict,
            pictures=by_kind,
            scores=score_table(results),
            comparisons=_comparisons(results),
            several_sets=len({one.data_set for one in results.examples}) > 1,
            explained=EXPLAINED,
            explained_groups=EXPLAINED_GROUPS,
            barriers=barrier_tables(results.curves),
            distances=distance_tables(results.distances),
            settings={name: value for name, value in results.settings.items() if name != "command"},
            command=results.settings.get("command"),
            glossary=GLOSSARY,
        )
    )


@dataclass(frozen=True)
class _Comparisons:
    """The tables of differences between matched and unmatched merges, with their intervals.

    Attributes:
        main: by the main metric of each data set; None where nothing was compared.
        groups: over the groups of a grid; None where there are none.
        every: by every metric; None where that is no more than `main`.
    """

    main: PlainTable | None
    groups: PlainTable | None
    every: PlainTable | None


def _comparisons(results: Results) -> _Comparisons:
    groups, main, every = group_lines(results), comparison_lines(results), comparison_lines(results, every=True)
    tables = (main, groups, every if len(every) > len(main) else [])
    return _Comparisons(*(plain_table(HEADS, lines, TEXTS) if lines else None for lines in tables))


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("fusionlab.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"code_spans": _code_spans, "drawn": Markup}
    return found


def _code_spans(text: str) -> list[tuple[str, bool]]:
    """Text cut into pieces, each with True where it stood in backticks; a number keeps its percent sign on its line."""
    pieces = re.split(r"`([^`]*)`", text.replace(" %", "\N{NO-BREAK SPACE}%"))
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces)]
