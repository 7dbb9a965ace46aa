"""Two models of other seeds on real data: what every way to one model reaches, by the protocol, a page a kind.

    python benchmarks/trained_pairs.py cifar10
    python benchmarks/trained_pairs.py cifar10 --page

The first command trains what is missing in `checkpoints` (some twenty minutes of a core each), measures what is missing
in `docs/results/cifar10.json`, and goes on where it was stopped. Then, as the second does alone, it writes
`docs/results/cifar10.md` from that file. Settings are chosen on validation data of the tuning pairs. `--small` goes
through it with tiny models and a step or two of everything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from pair_plan import Job, PairCells, Seeds
from settings import Batch, batches, quiet, ready
from torch import nn
from trained_pairs_kinds import KINDS, POINTS, PRECISION, Kind
from trained_pairs_page import page
from ways import MEAN, make

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.commands.end_models import EndModelOptions, train_end_model
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.models import untie

ROOT = Path(__file__).parents[1]
TEXT = ROOT / ".." / "shared" / "data" / "lm" / "tiny_shakespeare.parquet"
VISION = ROOT / ".." / "shared" / "data" / "vision" / "cifar10_jpeg"
GIVEN = tuple(ROOT / ".." / "shared" / "data" / "models" / f"cifar10_vit_seed{seed}" for seed in (1, 2))
SMALL_COUNT = 16


class TrainedPair(PairCells):
    """Two models of a kind.

    Args:
        kind: of both.
        split: ``tuning``, or ``test``.
        seeds: of both.
        cells: where what is measured is kept.
        args: of the command.
    """

    def __init__(self, kind: Kind, split: str, seeds: Seeds, cells: Cells, args: argparse.Namespace) -> None:
        super().__init__(split, seeds, cells, kind.metric)
        self.kind, self.args = kind, args

    def end(self, place: int, seed: int) -> nn.Module:
        """One model: a given one where there is one, else from its folder, where it is trained if it is not there."""
        given = self.args.given[place]
        if self.kind.given and self.split == "tuning" and given.exists() and not self.args.small:
            return fusionlab.load(given)
        folder = self.args.models / f"{self.kind.models}_seed{seed}"
        if not folder.exists():
            train_end_model(self._options().end_model(self.args.kind), seed, folder)
        return untie(fusionlab.load(folder)) if self.kind.untied else fusionlab.load(folder)

    def reached(self) -> dict[str, list[Any]]:
        """What both models and their ensemble reach."""
        found: dict[str, Sequence[nn.Module]] = {"ends": self.ends, "ensemble": [Ensemble(self.ends)]}
        return {name: [self._scores(model)[self.kind.metric] for model in models] for name, models in found.items()}

    def made(self, job: Job) -> dict[str, Any]:
        """The scores of the model that a way makes, and the barrier where it is the mean of two twins."""
        steps = 1 if self.args.small else job.steps or self.kind.plan.steps
        learning = {"steps": steps, "batch_size": self.kind.batch_size}
        inputs = None if job.way.seen == "none" else self._inputs
        made = make(job.way, job.given, self.ends, inputs, learning, job.seed or 0, PRECISION)
        found = self._scores(made.model) | {"seconds": made.seconds}
        if job.way.then == MEAN:
            found["barrier"] = fusionlab.barrier(made.twins[0], made.twins[1], self._scored, POINTS).barrier
        return found

    def _scores(self, model: nn.Module) -> dict[str, float]:
        scores = make_scores(model.eval())
        for batch in self._scored:
            scores.update(model, batch)
        return {name: float(value) for name, value in scores.compute().items() if name in {"loss", self.kind.metric}}

    def _options(self, **changes: Any) -> EndModelOptions:
        """How a model is trained.

        Args:
            changes: of the data module's options.
        """
        options: dict[str, Any] = {"trainer.precision": PRECISION, **self.kind.options}
        options |= {"data.init_args.path": str(getattr(self.args, self.kind.path))}
        options |= self.kind.small if self.args.small else {}
        options |= {f"data.init_args.{name}": value for name, value in changes.items()}
        return EndModelOptions(fit=self.kind.config, options=options)

    def _data(self, **changes: Any) -> Any:
        data = self._options(**changes).end_model(self.args.kind).data
        ready(data)
        return data

    @cached_property
    def _inputs(self) -> list[Batch]:
        """The first training examples as they are, without labels."""
        changes = {"augment": False} if self.kind.metric == "accuracy" else {}
        return batches(self._data(**changes).train_dataloader(), self._count(self.kind.inputs))

    @cached_property
    def _scored(self) -> list[Batch]:
        """Examples with labels that nothing else sees."""
        data = self._data()
        loader = data.val_dataloader() if self.split == "tuning" else data.test_dataloader()
        return batches(loader, self._count(self.kind.scored), labels=True)

    def _count(self, whole: int) -> int:
        return min(whole, SMALL_COUNT) if self.args.small else whole


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS, help="of models, and name of the page")
    parser.add_argument("--cifar", type=Path, default=VISION, help="folder of CIFAR-10 as Parquet files")
    parser.add_argument("--shakespeare", type=Path, default=TEXT, help="a Parquet file with columns text and split")
    parser.add_argument(
        "--given", type=Path, nargs=2, metavar="FOLDER", default=GIVEN,
        help="end models of the tuning pair of CIFAR-10, which are trained like the others where they are not there",
    )  # fmt: skip
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints", help="folder of end models")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--pair", type=int, nargs=2, help="seeds of the only test pair that is measured")
    parser.add_argument("--seeds", type=int, nargs="*", default=(), help="of learning, to measure alone")
    parser.add_argument("--count", type=int, help="measure so many cells at most")
    parser.add_argument("--small", action="store_true", help="tiny models, a step or two of everything")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args(argv)
    kind = KINDS[args.kind]
    cells = Cells(args.results / f"{args.kind}.json")
    quiet(1)
    if not args.page:
        args.results.mkdir(parents=True, exist_ok=True)
        only = [tuple(args.pair)] if args.pair else []
        kind.plan.measure(
            cells, lambda split, pair: TrainedPair(kind, split, pair, cells, args), args.count, only, args.seeds
        )
    with atomic_file(args.results / f"{args.kind}.md", overwrite=True) as temporary:
        temporary.write_text(page(args.kind, cells.found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
