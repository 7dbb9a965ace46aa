"""Assignments that follow the loss, on pairs of small tied GPT-2s: does any bring the barrier down, or do more steps?

    python benchmarks/assignments.py
    python benchmarks/assignments.py --page

The first command trains what is missing in `checkpoints/assignments` (two to five minutes of a core each), measures
what is missing in `docs/results/assignments.json` and goes on where it was stopped; small DeBERTas come after GPT-2s,
with `learned` alone. Then, as the second does alone, it writes `docs/results/assignments.md`. `--small` goes through
the first pair with tiny models and a step or two.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import yaml
from assignment_trials import RATE, STREAM, Halfway, ImplicitSinkhorn, annealed, sinkhorn, straight_through
from assignments_page import page
from assignments_rows import (
    BATCH,
    BLOCKS,
    COLD,
    KINDS,
    RATES,
    ROWS,
    SCORED,
    SWEEPS,
    TESTED,
    TUNED,
    WARM,
    Row,
    cell,
    wanted,
)
from cells import Cells
from settings import Batch, batches, quiet, ready

import fusionlab
from fusionlab import cli, configs
from fusionlab.atomic import atomic_file
from fusionlab.data import LanguageModelling
from fusionlab.inputs import Inputs
from fusionlab.learning.points import aliases
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import match_weights
from fusionlab.models import with_state
from fusionlab.symmetry import Alignment

ROOT = Path(__file__).parents[1]
POINTS = 5
SMALL_LENGTH = 16


class Trials:
    """Every row of one pair.

    Args:
        seeds: of the source and of the anchor.
        args: of the command.
        kind: one of `KINDS`.
    """

    def __init__(self, seeds: tuple[int, int], args: argparse.Namespace, kind: str = "gpt2") -> None:
        self.small, self.kind = args.small, kind
        self.models = [self._trained(seed, args).eval() for seed in seeds]
        how = yaml.safe_load(configs.resolve(KINDS[kind].config).read_text(encoding="utf-8"))["data"]["init_args"]
        length = {"max_length": SMALL_LENGTH} if args.small else {}
        self._how = {**how, "path": args.shakespeare, **length}
        text = self._text()
        self.inputs = batches(text.train_dataloader(), 64 if args.small else BLOCKS)
        test = text.test_dataloader() if seeds in TESTED else text.val_dataloader()
        self.test = batches(test, 8 if args.small else 400, labels=True)

    def _text(self, stride: int | None = None) -> Any:
        text: Any = LanguageModelling(**self._how, stride=stride)
        ready(text)
        return text

    def _inputs(self, row: Row) -> list[Batch]:
        if row.probes is not None:
            count = 64 if self.small else BLOCKS
            texts = Inputs.synthetic(self.models, count, kind=row.probes, length=row.length)
            return [dict(batch) for batch in texts.shared]
        if row.stride is None:
            return self.inputs if row.blocks is None else self._first(row.blocks)
        whole = self._text(min(row.stride, SMALL_LENGTH) if self.small else row.stride)
        # Neighbours are alike, and no more is read than the steps need.
        return batches(whole.train_dataloader(), 64 if self.small else None, is_mixed=True)

    def _first(self, blocks: int) -> list[Batch]:
        """The first blocks, in batches of at most 128."""
        every = {name: torch.cat([batch[name] for batch in self.inputs])[:blocks] for name in self.inputs[0]}
        parts = {name: values.split(128) for name, values in every.items()}
        return [dict(zip(parts, one, strict=True)) for one in zip(*parts.values(), strict=True)]

    def measure(self, row: str) -> dict[str, Any]:
        """A cell.

        Args:
            row: one of `ROWS`.
        """
        name, steps = ROWS[row].how, 2 if self.small and ROWS[row].steps else ROWS[row].steps
        start = time.process_time()
        if name == "learned":
            options: dict[str, Any] = {"steps": steps, "batch_size": ROWS[row].batch, "learning_rate": ROWS[row].rate}
            options |= {"optimizer": ROWS[row].optimizer, "start": ROWS[row].start, "starts": ROWS[row].starts}
            options |= {"concentration": ROWS[row].concentration, "draws": ROWS[row].draws}
            options |= {"synthetic": ROWS[row].synthetic}
            twins = fusionlab.align(self.models, anchor=1, preset="learned", data=self._inputs(ROWS[row]), **options)
            return self._judged(twins, start, {})
        where = name if name in ("activations", "known") else "annealed"
        halfway = self._halfway(where, seed=0 if name == "random" else None)
        told = self._tried(ROWS[row], halfway, steps)
        tied = aliases(self.models[0])
        twins = [
            with_state(self.models[1], {**state, **{other: state[first] for other, first in tied.items()}})
            for state in (halfway.source, halfway.anchor)
        ]
        return self._judged(twins, start, told)

    def _halfway(self, start: str, seed: int | None = None) -> Halfway:
        """The pair as weights match it, from a start; by a seed its stream in a random order, the rest by weights."""
        data = self.inputs[:8] if start == "activations" else None
        found = fusionlab.alignments(self.models, anchor=1, preset="weights", data=data, start=start)
        if seed is not None:
            blueprint, generator = found[0].blueprint, torch.Generator().manual_seed(seed)
            order = Alignment(blueprint, {STREAM: blueprint.spaces[STREAM].group.random(generator=generator)})
            turned = order.compose(found[0])
            source, anchor = (one.apply(m.state_dict()) for one, m in zip((turned, found[1]), self.models, strict=True))
            rest_of_it = preset("weights", spaces=("heads", "attention", "ffn"), start="known")
            rest = match_weights(source, anchor, blueprint, rest_of_it)
            found = [rest.compose(turned), found[1]]
        inputs = {name: torch.cat([batch[name] for batch in self.inputs]) for name in self.inputs[0]}
        return Halfway(self.models, found, inputs)

    def _tried(self, row: Row, halfway: Halfway, steps: int) -> dict[str, Any]:
        """Change the source's twin as a trial says; what is told of it."""
        told: dict[str, Any] = {}
        name, batch = row.how, BATCH if self.small else row.batch
        scored = (2, 4) if self.small else SCORED
        relaxations: Mapping[str, Any] = {
            "straight": lambda share: straight_through,
            "sinkhorn": annealed(sinkhorn, WARM, COLD),
            "implicit": annealed(ImplicitSinkhorn.apply, WARM, COLD),
        }
        if name == "swaps":
            told["swaps"] = [halfway.swap(*scored, seed) for seed in range(1 if self.small else SWEEPS)]
        if name in relaxations:
            told["moved"] = halfway.descend(steps, batch, RATE, relaxations[name], (STREAM,), RATES[name])
        if steps:
            halfway.descend(steps, batch, row.rate or RATE, seed=int("moved" in told))
        if name == "after":
            told["swaps"] = [halfway.swap(*scored)]
        return told

    def _judged(self, twins: list[Any], start: float, told: dict[str, Any]) -> dict[str, Any]:
        seconds = time.process_time() - start
        line = fusionlab.barrier(twins[0], twins[1], self.test, POINTS)
        return {"barrier": line.barrier, "losses": list(line.loss), "seconds": seconds, **told}

    def _trained(self, seed: int, args: argparse.Namespace) -> Any:
        output, kind = args.models / f"{self.kind}_{seed}", KINDS[self.kind]
        if not output.exists():
            command = ["fit", "--config", kind.config, "--seed", str(seed), "--trainer.callbacks.output", str(output)]
            command += ["--data.path", str(args.shakespeare)]
            if args.small:
                command += [
                    part for name, value in kind.small.items() for part in (f"--model.model.{name}", str(value))
                ]
                command += ["--data.max_length", str(SMALL_LENGTH), "--trainer.max_epochs", "1"]
            if cli.main(command) != 0:
                raise SystemExit(f"fusionlab {' '.join(command)} failed")
        return fusionlab.load(output)


def measure(args: argparse.Namespace, cells: Cells) -> None:
    """Measure what is missing, as many cells as were asked for."""
    every = [(kind, pair, row) for kind in args.kinds for pair, row in wanted(kind) if row in args.rows]
    chosen = [one for one in every if one[1] in TUNED or not args.small]
    if args.pairs:
        chosen = [one for one in chosen if "-".join(map(str, one[1])) in args.pairs]
    known: dict[tuple[str, tuple[int, int]], Trials] = {}
    for kind, pair, row in [one for one in chosen if cell(*one) not in cells.found][: args.count]:
        if (kind, pair) not in known:
            known[kind, pair] = Trials(pair, args, kind)
        values = known[kind, pair].measure(row)
        cells.keep(cell(kind, pair, row), values)
        print(
            cell(kind, pair, row), f"{values['barrier']:.4f}", f"{values['seconds']:.0f} s", file=sys.stderr, flush=True
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = "../shared/data/lm/tiny_shakespeare.parquet"
    parser.add_argument("--shakespeare", default=data, help="a Parquet file with columns text and split")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "assignments", help="that are trained")
    parser.add_argument("--pairs", nargs="+", metavar="A-B", help="only those of these seeds; all if not given")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="only those")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only those models")
    parser.add_argument("--count", type=int, help="measure so many cells at most")
    parser.add_argument("--small", action="store_true", help="tiny models, a step or two of everything")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args(argv)
    cells = Cells(args.results / "assignments.json")
    if not args.page:
        quiet(args.threads)
        args.results.mkdir(parents=True, exist_ok=True)
        measure(args, cells)
    with atomic_file(args.results / "assignments.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
