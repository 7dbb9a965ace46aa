"""One self-contained web page that tells the story of a merge."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from math import hypot

from fusionlab.evaluation.comparison_table import (
    EXPLAINED,
    EXPLAINED_GROUPS,
    HEADS,
    TEXTS,
    comparison_lines,
    group_lines,
)
from fusionlab.evaluation.distances import Distance, by_gauge, by_pair
from fusionlab.evaluation.drawing import DPI
from fusionlab.evaluation.results import UNMATCHED, Curve, Entry, Results
from fusionlab.evaluation.verdict import Verdict
from fusionlab.evaluation.wording import (
    format_change,
    format_value,
    gauge_label,
    matching_label,
    metric_heading,
    models_label,
    place_label,
)

GLOSSARY = {
    "end model": "One of the models to be merged.",
    "anchor": "The end model (or the mean, for many models) that the others are matched to.",
    "matching": "Moving a model into another model's basis: its weights change, what it computes does not. "
    "The names of the matchings say which parts of the network took part.",
    "unmatched": "Merged as the models are, without matching: what every matching is measured against.",
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
    """A figure on the page: the PNG for wide screens, the one for narrow screens, and its words."""

    wide: bytes
    narrow: bytes
    title: str
    caption: str
    kind: str


def page(results: Results, verdict: Verdict, pictures: Sequence[Picture]) -> str:
    """The whole page as HTML, with its style and its pictures inside; it needs no network and no script.

    Args:
        results: what was measured.
        verdict: what it means; names in backticks are shown as code.
        pictures: figures by kind: ``"scores"``, ``"line"`` or ``"distance"``.
    """
    style = files("fusionlab.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    sections = [
        _opening(results, verdict),
        _section("Results", _results_table(results), _figures(pictures, "scores")),
        _section("What matching changes", _comparisons(results)),
        _section("On the line between the models", _figures(pictures, "line"), _barriers(results.curves)),
        _section("Distance to the anchor", _figures(pictures, "distance"), _distances(results.distances)),
        _section("Settings", _settings(results.settings)),
        _section("How to reproduce", _reproduce(results.settings)),
        _section("Words", _glossary()),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(results.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n<footer>The same numbers, with all digits, are in results.json and results.csv beside this page.</footer>"
        + "\n</main>\n</body>\n</html>\n"
    )


def _opening(results: Results, verdict: Verdict) -> str:
    names = ", ".join(f"<code>{escape(name)}</code>" for name in results.models)
    models = f'<p class="subtitle">End models: {names}</p>' if names else ""
    paragraphs = "".join(f"<p>{_with_code(paragraph)}</p>" for paragraph in verdict.paragraphs)
    notes = "".join(f"<li>{escape(note)}</li>" for note in results.notes)
    return (
        f"<h1>{escape(results.title)}</h1>\n{models}\n"
        f'<div class="verdict"><p class="headline">{_with_code(verdict.headline)}</p>'
        f"{paragraphs}</div>\n" + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _section(title: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def _results_table(results: Results) -> str:
    table = results.table()
    if not table.entries:
        return ""
    timed = any(entry.seconds is not None for entry in table.entries)
    places, metrics = [], []
    for (data_set, domain), columns in groupby(table.columns, key=lambda column: (column.data_set, column.domain)):
        found = list(columns)
        label = escape(place_label(data_set, domain))
        places.append(f'<th class="group" colspan="{len(found)}" scope="colgroup">{label}</th>')
        metrics += [f'<th class="number" scope="col">{escape(metric_heading(column.metric))}</th>' for column in found]
    # Where all merges are of the same models, naming them on every line says nothing.
    named = len({entry.models for entry in table.entries if entry.is_merge}) > 1
    heads = ("model or matching", "method", "models") if named else ("model or matching", "method")
    head = "".join(f'<th rowspan="2" scope="col">{name}</th>' for name in heads)
    seconds = '<th rowspan="2" class="number" scope="col">time (s)</th>' if timed else ""
    best = [table.best(index) for index in range(len(table.columns))]
    lines = []
    for index, entry in enumerate(table.entries):
        cells = _entry_names(entry, results.models, named)
        for column, value, winners in zip(table.columns, entry.values, best, strict=True):
            mark = ' class="number best" title="best merge"' if index in winners else ' class="number"'
            cells += f"<td{mark}>{format_value(column.metric, value)}</td>"
        if timed:
            cells += f'<td class="number">{"" if entry.seconds is None else f"{entry.seconds:.1f}"}</td>'
        lines.append(f"<tr>{cells}</tr>" if entry.is_merge else f'<tr class="end-model">{cells}</tr>')
    legend = "<strong>Green</strong> marks the best merge in each column. " if any(best) else ""
    legend += "Time is for matching and merging, without the evaluation." if timed else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="results"><thead><tr>{head}{"".join(places)}{seconds}</tr>'
        f"<tr>{''.join(metrics)}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        + (f'<p class="legend">{legend.strip()}</p>' if legend else "")
    )


def _entry_names(entry: Entry, models: tuple[str, ...], named: bool) -> str:
    name = matching_label(entry.matching) if entry.is_merge else entry.name
    cells = f'<th scope="row">{escape(name)}</th><td>{escape(entry.method)}</td>'
    if named:
        cells += f"<td>{escape(models_label(entry.models, models)) if entry.is_merge else ''}</td>"
    return cells


def _figures(pictures: Sequence[Picture], kind: str) -> str:
    return "\n".join(
        f'<figure><div class="sheet"><picture><source media="(max-width: 640px)" srcset="{_data(picture.narrow)}">'
        f'<img src="{_data(picture.wide)}" width="{_shown_width(picture.wide)}" '
        f'alt="{escape(picture.title)}"></picture></div>'
        f"<figcaption><strong>{escape(picture.title)}.</strong> {escape(picture.caption)}</figcaption></figure>"
        for picture in pictures
        if picture.kind == kind
    )


def _comparisons(results: Results) -> str:
    """The table of differences with their intervals; by every metric where that is more, folded."""
    groups, main, every = group_lines(results), comparison_lines(results), comparison_lines(results, every=True)
    parts = [f'<p class="legend">{escape(EXPLAINED)}</p>'] if main else []
    if groups:
        parts += [f'<p class="legend">{escape(EXPLAINED_GROUPS)}</p>', _table(HEADS, groups, TEXTS)]
    if main and groups:
        parts.append(f"<details><summary>Every group by itself</summary>{_table(HEADS, main, TEXTS)}</details>")
    elif main:
        parts.append(_table(HEADS, main, TEXTS))
    if len(every) > len(main):
        parts.append(f"<details><summary>By every metric</summary>{_table(HEADS, every, TEXTS)}</details>")
    return "".join(parts)


def _barriers(curves: Sequence[Curve]) -> str:
    if not curves:
        return ""
    names = [
        (f"{c.anchor} to {c.source}", place_label(c.data_set, c.domain), matching_label(c.matching)) for c in curves
    ]
    lines = [
        (
            *name, format_value("barrier", c.barrier), format_value("loss", c.midpoint_loss),
            format_value(c.metric, c.midpoint_score),
        )
        for name, c in zip(names, curves, strict=True)
    ]  # fmt: skip
    points = [
        (*name, f"{position:.3g}", format_value("loss", loss), format_value(c.metric, score))
        for name, c in zip(names, curves, strict=True)
        for position, loss, score in zip(c.positions, c.loss, c.score, strict=True)
    ]
    heads = ("anchor to model", "data set", "matching")
    metrics = list(dict.fromkeys(c.metric for c in curves))
    metric = metric_heading(metrics[0]) if len(metrics) == 1 else "main metric"
    summary = _table((*heads, "barrier (loss)", "loss half way", f"{metric}, half way"), lines, texts=3)
    every = _table((*heads, "position", "loss", metric), points, texts=3)
    return f"<h3>Barriers</h3>{summary}<details><summary>All points of the curves</summary>{every}</details>"


def _distances(distances: Sequence[Distance]) -> str:
    if not distances:
        return ""
    roles = list(dict.fromkeys(d.role for d in distances))
    lines = []
    for (anchor, source), totals in by_pair(Results("", (), distances=list(distances)).total_distances()).items():
        parts = [d for d in distances if (d.anchor, d.source) == (anchor, source)]
        # Every matching starts from the same two models, so the first one tells how far apart they come.
        found = [(UNMATCHED, "given", totals[0])]
        found += [(t.matching, "after", t) for t in totals if t.as_given is None]
        for gauge in by_gauge(totals):
            found.append((gauge_label([t.matching for t in gauge]), "before", gauge[0]))
            found += [(t.matching, "after", t) for t in gauge]
        lines += [
            (f"{source} to {anchor}", matching_label(label), *_over_layers(parts, total.matching, roles, kind))
            for label, kind, total in found
        ]
    layers = [
        (
            f"{d.source} to {d.anchor}", matching_label(d.matching), d.role,
            "none" if d.layer is None else str(d.layer), format_value("distance", d.before),
            format_value("distance", d.after), format_change(d.before, d.after),
        )
        for d in distances
    ]  # fmt: skip
    heads = ("model to anchor", "matching")
    summary = _table((*heads, *roles, "whole model"), lines, texts=2)
    every = _table((*heads, "kind of space", "layer", "before", "after", "change"), layers, texts=3)
    return f"<h3>Distances over all layers</h3>{summary}<details><summary>Every layer</summary>{every}</details>"


def _over_layers(parts: Sequence[Distance], matching: str, roles: Sequence[str], kind: str) -> list[str]:
    """Distances of one pair in one matching, by role and of the whole model; after matching with their change."""
    known = [d for d in parts if d.matching == matching]
    cells = []
    for group in (*([d for d in known if d.role == role] for role in roles), known):
        value = hypot(*(getattr(d, kind) for d in group))
        change = f" ({format_change(hypot(*(d.before for d in group)), value)})" if kind == "after" else ""
        cells.append(format_value("distance", value) + change)
    return cells


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], texts: int) -> str:
    """A plain table whose first `texts` columns are words, told once above it where all lines agree."""
    same = [
        len(lines) > 1 and index < texts and len({line[index] for line in lines}) == 1 for index in range(len(heads))
    ]
    kept = [index for index in range(len(heads)) if not same[index]]
    above = ", ".join(f"{heads[index]}: {lines[0][index]}" for index in range(len(heads)) if same[index])
    kind = ["" if index < texts else ' class="number"' for index in range(len(heads))]
    head = "".join(f'<th{kind[index]} scope="col">{escape(heads[index])}</th>' for index in kept)
    body = "".join(
        f"<tr>{''.join(f'<td{kind[index]}>{escape(line[index])}</td>' for index in kept)}</tr>" for line in lines
    )
    return (f'<p class="legend">{escape(above)}</p>' if above else "") + (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _settings(settings: dict[str, str]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in settings.items()
        if name != "command"
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="settings"><tbody>{lines}</tbody></table></div>'
        if lines
        else ""
    )


def _reproduce(settings: dict[str, str]) -> str:
    if "command" not in settings:
        return ""
    return (
        "<p>The same command with the same versions, on the same kind of machine, gives the same numbers.</p>"
        f"<pre><code>{escape(settings['command'])}</code></pre>"
    )


def _glossary() -> str:
    return "<dl>" + "".join(f"<dt>{escape(w)}</dt><dd>{escape(m)}</dd>" for w, m in GLOSSARY.items()) + "</dl>"


def _with_code(text: str) -> str:
    """Text with its names in backticks as code; a number keeps its percent sign on its line."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text).replace(" %", "&nbsp;%"))


def _shown_width(png: bytes) -> int:
    """Width in CSS pixels at which a figure's letters are as large as the page's; from the PNG's header."""
    return int.from_bytes(png[16:20], "big") * 96 // DPI


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
