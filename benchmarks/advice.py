"""Advice on models of held-out seeds: is the case right, and how far is what it chooses from the best of all presets?

    python benchmarks/advice.py --sst2 ../shared/data/glue/sst2.parquet --markdown table.md

Every pair is trained here, of seeds that nothing was chosen by: small ViTs on digits, and small BERTs on
sentences of SST-2 where their file is given. Matching looks at training inputs without labels; every preset is measured
by the plain mean of the twins on the test set. Nothing is tuned: every option has its default. Without data the presets
that need none stand against one another, and `learned` on synthetic inputs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from advice_pairs import KINDS, Pair
from settings import Setting, quiet

import fusionlab
from fusionlab.advice import choose
from fusionlab.atomic import atomic_file
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import presets, recipe

HEADS = (
    "pair", "seed", "case", "agreement", "end models", "auto", "best preset", "below it", "auto without data", "best",
    "below it",
)  # fmt: skip
# Shown in place of the preset where no data are at hand.
DRAWN = "synthetic"


@dataclass(frozen=True)
class Row:
    """What was found of one pair: accuracies in percent by preset; its agreement where that was looked at."""

    pair: Pair
    case: str
    ends: float
    chosen: str
    alone: str
    reached: dict[str, float]
    agreement: float | None

    @property
    def is_right(self) -> bool:
        """True for a case that the models were made to be."""
        return self.case in self.pair.right

    def best(self, has_data: bool) -> str:
        """The preset with the highest accuracy, of all that look at data or of those that look at none."""
        kept = [name for name in self.reached if (name != DRAWN if has_data else name == DRAWN or is_free(name))]
        return max(kept, key=lambda name: self.reached[name])

    def below(self, has_data: bool) -> float:
        """Points from what was chosen to the best."""
        return self.reached[self.best(has_data)] - self.reached[self.chosen if has_data else self.alone]

    def cells(self) -> list[str]:
        """The row of a table."""
        case = self.case if self.is_right else f"{self.case} (**wrong**)"
        seen = "" if self.agreement is None else f"{self.agreement:.0%}"
        cells = [self.pair.kind, str(self.pair.seed), case.replace("_", " "), seen, f"{self.ends:.1f}"]
        for has_data, chosen in ((True, self.chosen), (False, self.alone)):
            best = self.best(has_data)
            cells += [f"{name} {self.reached[name]:.1f}" for name in (chosen, best)] + [f"{self.below(has_data):.1f}"]
        return cells


def is_free(name: str) -> bool:
    """True for a preset that looks at no inputs."""
    return not recipe(name).needs_inputs


def row(pair: Pair) -> Row:
    """Advice on a pair, and what every preset makes of it; -- where a preset refuses, it is left out."""
    named = {f"model {place}": model for place, model in enumerate(pair.models)}
    inputs = Inputs.from_batches(pair.inputs, len(named))
    chosen = choose(named, has_inputs=True, inputs=inputs)
    advice, seen = chosen.advice, chosen.advice.agreement
    setting = Setting(pair.kind, [pair.models], pair.test)
    reached = {}
    for name in (*presets(), DRAWN):
        options: dict[str, Any] = {"preset": "learned"} if name == DRAWN else {"preset": name}
        options |= {} if name == DRAWN or is_free(name) else {"data": pair.inputs}
        try:
            twins = fusionlab.align(pair.models, anchor=1, **options)
        except fusionlab.InputError as error:
            print(f"{pair.kind}, seed {pair.seed}: {name} refuses: {error}", file=sys.stderr)
            continue
        reached[name] = 100 * setting.measure(fusionlab.merge(twins))
    ends = 50 * sum(map(setting.measure, pair.models))
    without = choose(named, has_inputs=False)
    alone = DRAWN if without.draws else without.match
    return Row(pair, advice.case, ends, chosen.match, alone, reached, None if seen is None else seen.share)


def table(rows: Sequence[Row]) -> str:
    """All rows for a page."""
    lines = [HEADS, ["---"] * len(HEADS), *(one.cells() for one in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def summary(rows: Sequence[Row]) -> str:
    """How often the case was right and the choice near the best."""
    near = [sum(one.below(has_data) <= 1 for one in rows) for has_data in (True, False)]
    worst = [max(one.below(has_data) for one in rows) for has_data in (True, False)]
    return (
        f"Right case: {sum(one.is_right for one in rows)} of {len(rows)}. Within a point of the best preset: {near[0]} "
        f"(worst {worst[0]:.1f}); without data, of the best that needs none: {near[1]} (worst {worst[1]:.1f})."
    )


def pairs(args: argparse.Namespace) -> Iterator[Pair]:
    """All pairs of all kinds that were asked for."""
    for seed in args.seeds:
        for name in args.kinds:
            if args.sst2 is not None or not name.startswith("text"):
                yield KINDS[name](seed, args.sst2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[301, 302, 303])
    parser.add_argument("--sst2", type=Path, help="Parquet file with the columns sentence, label and split")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="also write the table here")
    args = parser.parse_args()
    quiet(args.threads)
    rows: list[Row] = []
    for pair in pairs(args):
        rows.append(row(pair))
        told = ", ".join(f"{name} {value:.1f}" for name, value in rows[-1].reached.items())
        print(" | ".join(rows[-1].cells()), f"({told})", file=sys.stderr, flush=True)
        if args.markdown:
            with atomic_file(args.markdown, overwrite=True) as temporary:
                temporary.write_text(f"{table(rows)}\n{summary(rows)}\n", encoding="utf-8")
    print(table(rows), summary(rows), sep="\n")
    return 0


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.exit(main())
