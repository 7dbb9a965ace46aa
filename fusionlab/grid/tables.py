"""The summary of a grid as tables: for the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fusionlab.evaluation.comparison import GroupComparison
from fusionlab.evaluation.metrics import is_fraction
from fusionlab.evaluation.results import NO_MATCHING, Domain
from fusionlab.evaluation.wording import domain_label, matching_label, metric_heading, place_label
from fusionlab.grid.cells import Finished
from fusionlab.grid.details import GroupScores, by_data_set, by_group, geometry
from fusionlab.grid.summary import DOMAINS, Line, Mean, best_lines

CAPTION = (
    "Means over groups and seeds, with standard errors. The change is matched minus unmatched, paired by group and "
    "seed: with a 95 % bootstrap interval in square brackets where at least six groups share no end model with each "
    "other, else with the smallest and the largest change in round ones, which only describe these groups. "
    "Time is that of matching and merging, or of training an end model; statistics "
    "of the unmatched end models are gathered once for all groups and not in it."
)


def console(lines: Sequence[Line], metric: str, title: str) -> Table:
    """The table for the terminal: the best merge of each column is bold and has a star."""
    table = Table(title=Text(title), title_justify="left", title_style="bold", caption=Text(CAPTION))
    table.caption_justify = "left"
    heads, rows = _rows(lines, metric, lambda text: f"{text} *")
    table.add_column(heads[0], overflow="fold", min_width=16)
    for head in heads[1:]:
        table.add_column(Text(head), justify="right", overflow="fold")
    for line, row in zip(lines, rows, strict=True):
        table.add_row(*row, style="" if line.is_merge else "dim")
    return table


def markdown(lines: Sequence[Line], metric: str) -> str:
    """A Markdown table, the best merge of each column in bold."""
    heads, rows = _rows(lines, metric, lambda text: f"**{text}**")
    return _markdown(heads, rows) + f"\n{CAPTION}\n"


def markdown_details(finished: Sequence[Finished], metric: str) -> str:
    """Further Markdown tables: each data set, each group, lines and distances; nothing where there is none of them."""
    parts = [_data_set_table(finished)]
    parts += [part for domain in DOMAINS if (part := _group_table(by_group(finished, domain), domain, metric))]
    if rows := geometry(finished):
        heads = ["matching", "barrier of the loss", "distance to the anchor", "before matching, in the same gauge"]
        body = [
            [
                matching_label(row.matching),
                *("" if m is None else _number(m, 1, 4) for m in (row.barrier, row.distance, row.start)),
            ]
            for row in rows
        ]
        parts.append("## Lines and distances\n\n" + _markdown(heads, body))
    return "\n".join(parts)


def latex(lines: Sequence[Line], metric: str) -> str:
    """A LaTeX ``tabular`` with booktabs rules, the best merge of each column in bold."""
    heads, rows = _rows(lines, metric, lambda text: rf"\textbf{{{text}}}")
    text = [rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule"]
    text += [" & ".join(map(_escape, heads)) + r" \\", r"\midrule"]
    text += [" & ".join(map(_escape, row)) + r" \\" for row in rows]
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(lines: Sequence[Line]) -> str:
    """CSV with all digits, one line for each line and domain."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["method", "matching", "domain", "mean", "standard_error", "count"]
    described = ["gain_smallest", "gain_largest", "gain_pairs", "gain_clusters"]
    writer.writerow([*head, "gain", "gain_low", "gain_high", "seconds", *described])
    for line in lines:
        for domain in DOMAINS:
            mean, gain = line.scores[domain], line.gains[domain]
            if mean is not None:
                change: tuple[Any, ...] = ("",) * 7
                # One of no pairs has no numbers: every group diverged.
                if gain is not None and gain.pairs:
                    ends = (gain.smallest, gain.largest, gain.pairs, gain.clusters)
                    change = (gain.difference, gain.lower, gain.upper, *ends)
                time = "" if line.seconds is None else line.seconds.value
                scores = [line.method, line.matching, domain, mean.value, mean.error, mean.count]
                writer.writerow([*scores, *change[:3], time, *change[3:]])
    return text.getvalue()


def _rows(lines: Sequence[Line], metric: str, bold: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
    domains = [domain for domain in DOMAINS if any(line.scores[domain] is not None for line in lines)]
    compared = [domain for domain in domains if any(line.gains[domain] is not None for line in lines)]
    heads = ["method", "matching"]
    best = {}
    for domain in domains:
        heads.append(f"{domain_label(domain)}, {metric_heading(metric)}")
        best[domain] = best_lines(lines, domain, metric)
        if domain in compared:
            heads.append("change by matching")
    timed = any(line.seconds is not None for line in lines)
    heads += ["time (s)"] if timed else []
    rows = []
    for index, line in enumerate(lines):
        row = [line.method, matching_label(line.matching) if line.is_merge else ""]
        for domain in domains:
            mean = line.scores[domain]
            shown = _mean(mean, metric)
            if mean is not None and line.lacks(domain):
                shown += f" ({mean.count} of {line.whole[domain]})"
            row.append(bold(shown) if index in best[domain] else shown)
            row += [_gain(line.gains[domain], metric)] if domain in compared else []
        rows.append(row + (["" if line.seconds is None else f"{line.seconds.value:.1f}"] if timed else []))
    return heads, rows


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (heads, ["---", *["---:"] * (len(heads) - 1)], *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _data_set_table(finished: Sequence[Finished]) -> str:
    columns, found = by_data_set(finished)
    heads = ["", *(f"{place_label(name, domain)}, {metric_heading(metric)}" for domain, name, metric in columns)]
    rows = []
    for (method, matching), means in found.items():
        name = method if matching == NO_MATCHING else f"{method}, {matching_label(matching)}"
        rows.append([name, *(_mean(mean, column[2]) for mean, column in zip(means, columns, strict=True))])
    return f"## Data sets\n\n{_markdown(heads, rows)}"


def _group_table(groups: Sequence[GroupScores], domain: Domain, metric: str) -> str:
    if len(groups) < 2:
        return ""
    keys = list(dict.fromkeys(key for group in groups for key in group.scores))
    columns = [
        method if matching == NO_MATCHING else f"{method}, {matching_label(matching)}" for method, matching in keys
    ]
    rows = []
    for group in groups:
        cells = [_mean(group.scores.get(key), metric) for key in keys]
        rows.append([" + ".join(group.models), *cells])
    head = f"## Groups, {domain_label(domain)}, {metric_heading(metric)}"
    return f"{head}\n\n{_markdown(['end models', *columns], rows)}"


def _mean(mean: Mean | None, metric: str) -> str:
    return "" if mean is None else _number(mean, *_scale(metric))


def _number(mean: Mean, scale: float, digits: int) -> str:
    if not math.isfinite(mean.value):
        return "diverged"
    error = "" if mean.error is None else f" ± {scale * mean.error:.{digits}f}"
    return f"{scale * mean.value:.{digits}f}{error}"


def _gain(gain: GroupComparison | None, metric: str) -> str:
    if gain is None:
        return ""
    if not math.isfinite(gain.difference):
        return "diverged"
    scale, digits = _scale(metric)
    value = f"{scale * gain.difference:+.{digits}f}"
    if gain.lower is not None and gain.upper is not None:
        return f"{value} [{scale * gain.lower:+.{digits}f}, {scale * gain.upper:+.{digits}f}]"
    if gain.pairs < 2:
        return value
    return f"{value} ({scale * gain.smallest:+.{digits}f} to {scale * gain.largest:+.{digits}f})"


def _scale(metric: str) -> tuple[int, int]:
    return (100, 2) if is_fraction(metric) else (1, 3)


def _escape(text: str) -> str:
    for sign in ("%", "_", "&", "#"):
        text = text.replace(sign, rf"\{sign}")
    return text.replace("±", r"$\pm$")
