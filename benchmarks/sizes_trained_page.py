"""The sections about CIFAR-10 and GPT-2 of the page about models of different sizes, written from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from intervals import half_width
from sizes_trained_models import (
    BLOCKS,
    BLOCKS_AT_ONCE,
    COLUMNS,
    CONTEXT,
    GPT2_EPOCHS,
    GPT2_LARGE,
    GPT2_SMALL,
    LOOKED_AT,
    SMALL_VIT,
    TESTED_BLOCKS,
    TESTED_ROWS,
    TRAINED_ROWS,
    TUNING_LARGE,
    TUNING_SMALL,
    VIT_EPOCHS,
)

# Positions on a line, and those of them that are shown.
POINTS, SHOWN = 9, (0, 2, 4, 6, 8)
STEPS = 300
PLAIN = ("none", "weights")
LEARNED, HELD = f"learned {STEPS}", f"held {STEPS}"
DISTILLED = (f"large {STEPS}", f"small {STEPS}")


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page.

    Attributes:
        kind: of models, in names of cells.
        title: of the section.
        columns: what each pair is called.
        rows: of each pair, by name of cell.
        metric: that is shown.
        what: the metric in words.
        places: where the ends are held against each other.
    """

    kind: str
    title: str
    columns: dict[str, str]
    rows: dict[str, tuple[str, ...]]
    metric: str
    what: str
    places: str

    def shown(self, value: float) -> str:
        """A value of the metric."""
        return f"{100 * value:.1f}" if self.metric == "accuracy" else f"{value:.3f}"

    def mean(self, values: Sequence[float]) -> str:
        """The mean over pairs, with half the width of its interval where there are enough."""
        half = f" ± {self.shown(half_width(values))}" if len(values) > 2 else ""
        return f"{self.shown(fmean(values))}{half}"

    def worst(self, values: Sequence[float]) -> str:
        return self.shown(min(values) if self.metric == "accuracy" else max(values))


CIFAR = Section(
    kind="cifar",
    title=f"CIFAR-10: {SMALL_VIT[2]} wide with 96 wide",
    columns={column: f"seed {column}, large {1 + place % 2}" for place, column in enumerate(COLUMNS["cifar"])},
    rows=dict.fromkeys(COLUMNS["cifar"], ("ends", *PLAIN, LEARNED, HELD, *DISTILLED)),
    metric="accuracy",
    what="accuracy in %",
    places="test images",
)
_NUMBERS = {"": "pair 1", "-2": "pair 2", "-3": "pair 3"}


def _gpt2(how: str, rows: tuple[str, ...]) -> Section:
    columns = {f"{how}{number}": name for number, name in _NUMBERS.items()}
    return Section(
        kind="gpt2",
        title=f"GPT-2 on bytes, {how}: {GPT2_SMALL[2]} wide with {GPT2_LARGE[2]} wide",
        columns=columns,
        rows=dict.fromkeys(columns, rows),
        metric="loss",
        what="loss in nats a byte",
        places="bytes of the test text",
    )


# What is distilled does not know of twins: rows of tied models stand for untied ones too.
TIED = _gpt2("tied", ("ends", *PLAIN, LEARNED, *DISTILLED))
UNTIED = _gpt2("untied", ("ends", *PLAIN, LEARNED))
TUNED = Section(
    kind="tuning",
    title=f"What is new, learned too by tied GPT-2s: {TUNING_SMALL[2]} wide with {TUNING_LARGE[2]} wide",
    columns={column: f"seeds {column}, {int(column) + 1}" for column in COLUMNS["tuning"]},
    rows=dict.fromkeys(COLUMNS["tuning"], ("ends", LEARNED, HELD)),
    metric="loss",
    what="loss in nats a byte",
    places="bytes of the validation text",
)
SECTIONS = (CIFAR, TIED, UNTIED, TUNED)
# In points below the mean of the ends, and in nats.
MOST_BELOW, HIGHEST_BARRIER = 2.0, 0.10


def trained_cell(kind: str, column: str, what: str) -> str:
    """A cell's name in the file."""
    return f"{kind} {column} {what}"


def trained_text(found: dict[str, Any]) -> str:
    """All sections, with the rows that are there; nothing where nothing is measured."""
    told = {CIFAR: (_cifar_introduction(), _cifar_verdict), TIED: (_tied_introduction(), _gpt2_verdict),
            UNTIED: (_UNTIED, _gpt2_verdict), TUNED: (_TUNED, lambda _: iter(()))}  # fmt: skip
    parts = []
    for section, (introduction, verdict) in told.items():
        tables = _Tables(section, found)
        if tables.columns:
            aims = "".join(f"{line}\n" for line in verdict(tables))
            parts.append(f"## {section.title}\n\n{introduction}\n\n{tables.text()}" + (f"\n{aims}" if aims else ""))
    return "\n".join(parts)


def trained_missing(found: dict[str, Any]) -> list[str]:
    """What of the sections is not measured, in words."""
    lines = []
    for section in SECTIONS:
        for column, name in section.columns.items():
            wanted = section.rows[column]
            left = [what for what in wanted if trained_cell(section.kind, column, what) not in found]
            if left:
                rows = "all rows" if len(left) == len(wanted) else ", ".join(_row_name(what) for what in left)
                lines.append(f"- {section.title}, {name}: {rows}.")
    return lines


class _Tables:
    """The tables of a section, of the pairs whose end models are there."""

    def __init__(self, section: Section, found: dict[str, Any]) -> None:
        self.section, self.found = section, found
        self.columns = [column for column in section.columns if self.cell(column, "ends")]

    def cell(self, column: str, what: str) -> Any:
        return self.found.get(trained_cell(self.section.kind, column, what))

    def cells(self, what: str) -> dict[str, Any]:
        """By column, where they are there."""
        return {column: cell for column in self.columns if (cell := self.cell(column, what))}

    def value(self, column: str, end: str) -> float:
        """The metric of an end model, or the mean of both."""
        if end == "mean":
            return fmean(self.value(column, one) for one in ("small", "large"))
        return float(self.cell(column, "ends")[end][self.section.metric])

    @property
    def rows(self) -> list[str]:
        """All rows but that of the ends, in the order in which they stand in the table."""
        rows = dict.fromkeys(what for column in self.columns for what in self.section.rows[column] if what != "ends")
        order = ["none", "weights", "learned", "held", "large", "small"]
        return sorted(rows, key=lambda what: order.index(what.partition(" ")[0]))

    def text(self) -> str:
        """What growing did, and the tables that have rows."""
        section = self.section
        ends = [self.cell(column, "ends") for column in self.columns]
        few, many = ends[0]["parameters"]
        heads = (*(("mean", "worst") if len(self.columns) > 1 else ()), *(section.columns[c] for c in self.columns))
        parts = [
            f"{few:,} parameters become {many:,}. Logits of the small model and of the grown one differ by at most\n"
            f"{max(cell['exact'] for cell in ends):.0e} of the largest in float64.",
            _table((section.what, *heads, "seconds"), self._reached()),
        ]
        if lines := list(self._lines()):
            points = (f"{place / (POINTS - 1):g}" for place in SHOWN)
            parts += [
                "Seconds are of a processor, one thread, the mean over pairs. The line from the small model's twin\n"
                "(0) to the large one's (1), the mean over pairs:",
                _table((section.what, "pairs", *points, "barrier of the loss, mean (highest)"), lines),
                f"The {section.places} on which the ends differ, all pairs, are taken as",
                _table(("", "of them", "the small one", "the large one", "neither"), self._agreements()),
            ]
        return "\n\n".join(parts) + "\n"

    def _reached(self) -> Iterator[str]:
        names = {"small": "small end model", "grown": "small end model, grown", "large": "large end model"}
        for end, name in {**names, "mean": "mean of the ends", "ensemble": "ensemble of both"}.items():
            yield self._row(name, {column: self.value(column, end) for column in self.columns})
        for what in self.rows:
            if cells := self.cells(what):
                values = {column: cell["scores"][self.section.metric] for column, cell in cells.items()}
                yield self._row(_row_name(what), values, f"{fmean(cell['seconds'] for cell in cells.values()):,.1f}")

    def _row(self, name: str, values: dict[str, float], seconds: str = "") -> str:
        cells = [self.section.shown(values[column]) if column in values else "" for column in self.columns]
        if len(self.columns) > 1:
            every = list(values.values())
            cells = [self.section.mean(every), self.section.worst(every), *cells]
        return f"| {name} | {' | '.join(cells)} | {seconds} |"

    def _lines(self) -> Iterator[str]:
        for what in self.rows:
            cells = [cell for cell in self.cells(what).values() if "line" in cell]
            if cells:
                lines = [cell["line" if self.section.metric == "accuracy" else "losses"] for cell in cells]
                values = " | ".join(self.section.shown(fmean(line[place] for line in lines)) for place in SHOWN)
                barriers = [cell["barrier"] for cell in cells]
                barrier = f"{fmean(barriers):.3f} ({max(barriers):.3f})"
                yield f"| {_row_name(what)} | {len(cells)} | {values} | {barrier} |"

    def _agreements(self) -> Iterator[str]:
        for what in self.rows:
            cells = self.cells(what)
            differ = sum(self.cell(column, "ends")["differ"] for column in cells)
            small, large = (sum(cell["agrees"][end] for cell in cells.values()) for end in (0, 1))
            if cells:
                yield f"| {_row_name(what)} | {differ:,} | {small:,} | {large:,} | {differ - small - large:,} |"


def _row_name(what: str) -> str:
    name, _, steps = what.partition(" ")
    whole = {"ends": "end models", "none": "plain mean after growth", "weights": "`weights`"}
    if name in whole:
        return whole[name]
    taught = {"learned": f"`learned`, {steps} steps", "held": "the same, `unseen` false"}
    return taught.get(name, f"both distilled into the {name} one, {steps} steps")


def _cifar_introduction() -> str:
    layers, heads, width = SMALL_VIT
    return f"""    python benchmarks/sizes_trained.py --cifar FOLDER --vits FOLDER FOLDER --shakespeare FILE

That command measures this section and the next ones into [`sizes_trained.json`](sizes_trained.json). The large models
are two ViTs of 4 layers, 4 heads, 96 wide, trained elsewhere from two seeds for {VIT_EPOCHS} epochs on the first
{TRAINED_ROWS:,} training images (JPEG copies). Small ones ({layers} layers, {heads} heads, {width} wide) are trained
here on the same images for as many epochs by `vit_cifar10.yaml`, which mirrors and shifts them and smooths labels; then
their norms take the epsilon of the large ones'. A pair is a small model, by its seed, and one of the large ones in
turn, so pairs are not independent. {LOOKED_AT:,} of those images, unlabelled and as they are, are there to match and to
distil with; the first {TESTED_ROWS:,} test images are tested on (one image is {100 / TESTED_ROWS:.3f} points).
Every other option has its default. One seed of learning; nothing was chosen on these models. An earlier table, of one
small model trained for 5 epochs, had been seen."""


def _tied_introduction() -> str:
    (layers, heads, width), (_, more_heads, more) = GPT2_SMALL, GPT2_LARGE
    epochs = {1: "once", 2: "twice"}.get(GPT2_EPOCHS, f"{GPT2_EPOCHS} times")
    return f"""GPT-2s of {layers} layers, small ones {width} wide with {heads} heads and large ones {more} wide with
{more_heads}, go {epochs} over Tiny Shakespeare byte by byte in blocks of {CONTEXT} bytes, by
`gpt2_shakespeare.yaml` (seeds 0 and 1, 2 and 3, 4 and 5; no dropout, bf16-mixed): short trainings, such as one core
does in minutes. The first {BLOCKS:,} blocks of the training text are there to match and to distil with,
{BLOCKS_AT_ONCE} in a step ({BLOCKS_AT_ONCE * CONTEXT:,} bytes) in bf16-mixed; every other option has its default. The
loss is that of {TESTED_BLOCKS} blocks of the test text. Tied models grow by a whole multiple of the width, and their
stream is permuted, not rotated. One seed of learning; nothing was chosen on these pairs, whose first one had been
learned before without what is new."""


_UNTIED = """The same models with input and output embeddings of their own (`--untie`), whose streams rotate.
Distillation knows of no twins, so its rows stand above."""
_TUNED = f"""Smaller pairs, trained in the same way, on which it was chosen that `learned` also learns what is new and
changes nothing; the loss is that of {TESTED_BLOCKS} blocks of the validation text."""


def _cifar_verdict(tables: _Tables) -> Iterator[str]:
    for what, name in ((LEARNED, "`learned`"), (HELD, "`learned`, `unseen` false,")):
        cells = tables.cells(what)
        gaps = [100 * (cell["scores"]["accuracy"] - tables.value(column, "mean")) for column, cell in cells.items()]
        if not gaps:
            continue
        better = [max(tables.value(column, end) for end in ("small", "large")) for column in cells]
        below = 100 * (fmean(cell["scores"]["accuracy"] for cell in cells.values()) - fmean(better))
        pairs = f"over {len(gaps)} pairs, the worst at {min(gaps):+.1f}" if len(gaps) > 1 else "in one pair"
        yield (
            f"- {name} in {STEPS} steps is {fmean(gaps):+.2f} points from the mean of the ends {pairs}: at most "
            f"{MOST_BELOW:g} points below is {_reached(min(gaps) >= -MOST_BELOW)}. From the better end it is "
            f"{below:+.2f}."
        )


def _gpt2_verdict(tables: _Tables) -> Iterator[str]:
    if not (cells := tables.cells(LEARNED)):
        return
    barriers = [cell["barrier"] for cell in cells.values()]
    gap = fmean(cell["scores"]["loss"] - tables.value(column, "mean") for column, cell in cells.items())
    pairs = f"{fmean(barriers):.3f} over {len(cells)} pairs, at most {max(barriers):.3f}"
    yield (
        f"- `learned` in {STEPS} steps leaves a barrier of "
        f"{pairs if len(cells) > 1 else f'{barriers[0]:.3f} in one pair'}: at most {HIGHEST_BARRIER:.2f} is "
        f"{_reached(max(barriers) <= HIGHEST_BARRIER)}. Half way it is {gap:+.3f} from the mean of the ends."
    )


def _reached(is_reached: bool) -> str:
    return "**reached**" if is_reached else "**missed**"


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    return "\n".join([f"| {' | '.join(heads)} |".replace("|  |", "| |"), f"|---|{'---:|' * (len(heads) - 1)}", *rows])
