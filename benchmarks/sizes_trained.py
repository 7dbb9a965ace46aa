"""Small and large ViTs on CIFAR-10, small and large GPT-2s on bytes of Shakespeare: what is left half way.

    python benchmarks/sizes_trained.py --cifar FOLDER --vits FOLDER FOLDER --shakespeare FILE
    python benchmarks/sizes_trained.py --page

The first command trains what is missing in `checkpoints/sizes_trained`, measures what is missing in
`docs/results/sizes_trained.json`, the shorter rows first, and goes on where it was stopped, a training after its last
epoch. Pairs whose files are not there are left out. Then, as the second does alone, it writes
`docs/results/different_sizes.md`.

    python benchmarks/sizes_trained.py --small --results FOLDER --models FOLDER

goes through the first pair of each with tiny models and a step or two, into folders of their own.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from cells import Cells
from different_sizes import write_page
from settings import quiet
from sizes_measures import OPTIMIZER
from sizes_trained_models import COLUMNS, KINDS, Looked, MissingError
from sizes_trained_page import HELD, LEARNED, PLAIN, POINTS, SECTIONS, trained_cell
from torch import Tensor, nn

import fusionlab
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.growing import grown
from fusionlab.polish import PolishOptions, polish
from fusionlab.trainers import quiet_factory

ROOT = Path(__file__).parents[1]
# In the order to measure in: of which models, of which of them, and which rows; then all rows.
PLAN = (
    *(("tuning", column, ("ends", LEARNED, HELD)) for column in COLUMNS["tuning"]),
    *(("gpt2", column, ("ends", LEARNED)) for column in ("tied", "untied", "tied-2", "tied-3")),
    *(("cifar", column, ("ends", LEARNED, *PLAIN)) for column in COLUMNS["cifar"]),
    *((one.kind, column, rows) for one in SECTIONS for column, rows in one.rows.items()),
)


class TrainedPair:
    """A small and a large model, and the cells about them.

    Args:
        ends: the small model and the large one.
        looked: what they are matched with and measured on.
        steps: of learning and distillation, in place of those of a row; as the rows say if None.
    """

    def __init__(self, ends: list[nn.Module], looked: Looked, steps: int | None = None) -> None:
        self.ends, self.looked, self.steps = [end.eval() for end in ends], looked, steps
        self._trainer = {"precision": looked.precision}

    def measure(self, what: str) -> dict[str, Any]:
        """A cell.

        Args:
            what: ``ends``; ``none``, ``weights`` or ``learned 300``, for matching by that preset in so many steps;
                ``held 300``, for learned matching that leaves what is new as it is; ``large 300`` or ``small 300``, for
                both distilled into that one of them.
        """
        name, _, steps = what.partition(" ")
        if name == "ends":
            return self._end_models()
        if name in ("large", "small"):
            return self._distilled(name, self.steps or int(steps))
        if not steps:
            return self._matched(name)
        how: dict[str, Any] = {"steps": self.steps or int(steps), "batch_size": self.looked.batch_size}
        how["unseen"] = name != "held"
        return self._matched("learned", data=self.looked.inputs, trainer=self._trainer, **how)

    def _end_models(self) -> dict[str, Any]:
        growth = grown(self.ends[0], self.ends[1])
        guesses = [self._guesses(end) for end in self.ends]
        return {
            "small": self._scores(self.ends[0]),
            "large": self._scores(self.ends[1]),
            "grown": self._scores(growth.model),
            "ensemble": self._scores(Ensemble(self.ends)),
            "exact": growth.exact,
            "parameters": list(growth.parameters),
            "differ": int((guesses[0] != guesses[1]).sum()),
            "of": len(guesses[0]),
        }

    def _matched(self, preset: str, **how: Any) -> dict[str, Any]:
        start = time.process_time()
        if preset == "learned":
            how |= OPTIMIZER
        twins = fusionlab.align(self.ends, anchor=1, preset=preset, **how)
        merge = fusionlab.merge(twins)
        seconds = time.process_time() - start
        line = fusionlab.barrier(twins[0], twins[1], self.looked.test, POINTS)
        found = {"barrier": line.barrier, "line": list(line.score), "losses": list(line.loss)}
        return {**found, "scores": self._scores(merge), "agrees": self._agrees(merge), "seconds": seconds}

    def _distilled(self, which: str, steps: int) -> dict[str, Any]:
        start = time.process_time()
        student = self.ends[("small", "large").index(which)]
        options = PolishOptions(steps=steps, batch_size=self.looked.batch_size)
        found = polish(student, self.ends, self.looked.inputs, options, quiet_factory({"devices": 1, **self._trainer}))
        seconds = time.process_time() - start
        return {"scores": self._scores(found), "agrees": self._agrees(found), "seconds": seconds}

    @torch.no_grad()
    def _guesses(self, model: nn.Module) -> Tensor:
        """The likeliest label of every image, or the likeliest next byte at every place."""
        found = []
        for batch in self.looked.test:
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            found.append(model.eval()(**inputs).logits.argmax(-1).flatten())
        return torch.cat(found)

    def _scores(self, model: nn.Module) -> dict[str, float]:
        # An ensemble does not say what it is used for.
        scores = make_scores(self.ends[0])
        for batch in self.looked.test:
            scores.update(model.eval(), batch)
        return scores.compute()

    def _agrees(self, model: nn.Module) -> list[int]:
        """Of the places at which the ends differ, those at which a model says what each of them says."""
        guesses, found = [self._guesses(end) for end in self.ends], self._guesses(model)
        differ = guesses[0] != guesses[1]
        return [int((found == guess)[differ].sum()) for guess in guesses]


def cells_to_measure(cells: Cells, small: bool = False) -> Iterator[tuple[str, str, str]]:
    """The rows that are missing, in their order: of which models, of which of them, and which row.

    Args:
        cells: what is there.
        small: the first pair of each kind alone.
    """
    plan = [row for row in PLAN if not small or row[1] in (COLUMNS["cifar"][0], COLUMNS["tuning"][0], "tied", "untied")]
    rows = dict.fromkeys((kind, column, what) for kind, column, rows in plan for what in rows)
    yield from (row for row in rows if trained_cell(*row) not in cells.found)


def measure(args: argparse.Namespace, cells: Cells) -> None:
    """Measure what is missing, as far as there are files and as many cells as were asked for."""
    kinds: dict[str, Any] = {}
    for kind, make in KINDS.items():
        try:
            kinds[kind] = make(args)
        except MissingError as error:
            print(f"left out: {kind}: {error}", file=sys.stderr)
    pairs: dict[tuple[str, str], TrainedPair] = {}
    for kind, column, what in [cell for cell in cells_to_measure(cells, args.small) if cell[0] in kinds][: args.count]:
        if (kind, column) not in pairs:
            # One pair at a time lies in memory.
            pairs = {
                (kind, column): TrainedPair(kinds[kind].ends(column), kinds[kind].looked, 2 if args.small else None)
            }
        name = trained_cell(kind, column, what)
        cells.keep(name, pairs[kind, column].measure(what))
        print(name, cells.found[name].get("scores", ""), file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = "../shared/data"
    parser.add_argument("--cifar", default=f"{data}/vision/cifar10_jpeg", help="folder of CIFAR-10 as Parquet files")
    parser.add_argument(
        "--vits", nargs=2, metavar="FOLDER", help="the large models of CIFAR-10",
        default=[f"{data}/models/cifar10_vit_seed{seed}" for seed in (1, 2)],
    )  # fmt: skip
    parser.add_argument(
        "--shakespeare", default=f"{data}/lm/tiny_shakespeare.parquet", help="a Parquet file with a column of splits"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "sizes_trained", help="that are trained")
    parser.add_argument("--count", type=int, help="measure so many cells at most")
    parser.add_argument("--small", action="store_true", help="tiny models, a step or two of everything")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args(argv)
    if not args.page:
        quiet(args.threads)
        args.results.mkdir(parents=True, exist_ok=True)
        measure(args, Cells(args.results / "sizes_trained.json"))
    write_page(args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
