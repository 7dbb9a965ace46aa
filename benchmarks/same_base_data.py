"""Fine-tunes of one base merged with data at hand: unlabelled inputs, labelled ones, and a polish after the merge.

    python benchmarks/same_base_data.py
    python benchmarks/same_base_data.py --page

The first command trains what is missing in `checkpoints/same_base`, as `same_base.py` does, measures what is missing in
`docs/results/same_base_data.json`, and goes on where it was stopped. Then, as the second does alone, it writes
`docs/results/same_base.md` from that file and `same_base.json`. What is chosen is chosen on the validation images of
the tuning models.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from cells import Cells
from same_base import COUNTS, ROOT, TEST, TUNING, WITH_DATA, Measuring, chosen, write_page
from same_base_data_page import polish_name
from same_base_models import TASKS, accuracy, body_of
from same_base_page import cell_name
from settings import quiet

from fusionlab.fusion import TaskModels
from fusionlab.merging import merge_states
from fusionlab.models import with_state
from fusionlab.polish import PolishOptions, polish
from fusionlab.search import SearchOptions, Space, Trials

SEARCHED = ", searched"
# By method what is tried on the tuning models, where it is more than one. Methods that see weights alone, and regmean,
# are as same_base.py chose; searches look at validation images of the test models, so there is nothing to choose.
GRIDS: dict[str, list[dict[str, Any]]] = {
    "simple": [{}],
    "tsv_m": [{}],
    "regmean": [{"alpha": 0.99}],
    "adamerging": [{}, {"by": "task"}],
    f"task_arithmetic{SEARCHED}": [{"trials": 40}],
}
# Of the curve: images of each task without labels; and the steps that are tried on the tuning models, with 64 of them.
IMAGES, COUNT, START = (16, 64, 256), 8, "tsv_m"
STEPS, TRIED_ON = (100, 300), 64


class WithData(Measuring):
    """The cells of one seed."""

    def merge(self, count: int, method: str, given: dict[str, Any]) -> None:
        """The accuracy on each of the first tasks of their merge, which may be searched for first."""
        if method.endswith(SEARCHED):
            self._search(count, method, given)
        else:
            super().merge(count, method, given)

    def _search(self, count: int, named: str, given: dict[str, Any]) -> None:
        """The merge with the settings that a search found best on the validation images, with labels."""
        name, method = cell_name(self.split, self.seed, count, named, given), named.removesuffix(SEARCHED)
        if name in self.cells.found:
            return
        seen = self.images["validation"]
        models, base = [body_of(model) for model in self.models.tuned[:count]], body_of(self.models.base)
        pairs = list(zip(self.models.tuned, TASKS, strict=True))[:count]
        own = [accuracy(model, task.of(seen)) for model, task in pairs]
        options = SearchOptions(**given, seed=self.seed)
        trials = Trials(Space.of(method, count, options, names=list(base)), options)
        start, best = time.perf_counter(), {}
        while (settings := trials.ask()) is not None:
            how = settings.hyperparameters
            merged = merge_states(models, method, settings.weights, base=base, seed=self.seed, **how)
            found = [self.models.score(merged, place, seen) for place in range(count)]
            trials.tell(fmean(score / end for score, end in zip(found, own, strict=True)))
            if trials.done[-1] is trials.found().best:
                best = merged
        seconds = time.perf_counter() - start
        scores = [self.models.score(best, place, self.images[self.split]) for place in range(count)]
        self.cells.keep(name, {"scores": scores, "seconds": seconds, "trials": [one.score for one in trials.done]})
        print(name, f"{fmean(scores):.3f}", file=sys.stderr, flush=True)

    def polish(self, images: int, steps: int) -> None:
        """The accuracy on each task of a merge that was polished on so many images of each, without labels.

        Args:
            images: of each task, the same ones of every task, drawn by the seed of the models.
            steps: of the distillation.
        """
        name = polish_name(self.split, self.seed, COUNT, START, images, steps)
        if name in self.cells.found:
            return
        tuned, tasks = self.models.tuned[:COUNT], TASKS[:COUNT]
        body = merge_states([body_of(one) for one in tuned], START, base=body_of(self.models.base))
        merged = TaskModels([with_state(one, {**one.state_dict(), **body}) for one in tuned])
        pixels, digits = self.images["tuned"]
        taken = torch.randperm(len(digits), generator=torch.Generator().manual_seed(self.seed))[:images]
        inputs = [[{"pixel_values": task.of((pixels[taken], digits[taken]))[0]}] for task in tasks]
        start, options = time.perf_counter(), PolishOptions(steps=steps, seed=self.seed)
        found = polish(merged.sharing(), tuned, inputs, options, answering=TaskModels.answering)
        seconds = time.perf_counter() - start
        scores = [
            accuracy(model, task.of(self.images[self.split])) for model, task in zip(found.tasks, tasks, strict=True)
        ]
        self.cells.keep(name, {"scores": scores, "seconds": seconds})
        print(name, f"{fmean(scores):.3f}", file=sys.stderr, flush=True)


def steps_of(cells: Cells) -> int:
    """The number of steps of the curve: the better one on the tuning models' validation images."""

    def reached(steps: int) -> float:
        names = (polish_name("validation", seed, COUNT, START, TRIED_ON, steps) for seed in TUNING)
        return fmean(score for name in names for score in cells.found[name]["scores"])

    return max(STEPS, key=reached)


def measure(cells: Cells, folder: Path) -> None:
    """Measure what is missing: on the tuning models what is chosen by, then on the test models what was chosen."""
    for seed in TUNING:
        measuring = WithData(seed, "validation", cells, folder)
        measuring.ends()
        for steps in STEPS:
            measuring.polish(TRIED_ON, steps)
        for method, grid in GRIDS.items():
            for count in COUNTS:
                for given in grid if len(grid) > 1 else ():
                    measuring.merge(count, method, given)
    best: dict[str, Any] = {
        f"{count} {method}": chosen(cells, count, method, tried) for count in COUNTS for method, tried in GRIDS.items()
    }
    cells.keep("chosen", best | {"steps": steps_of(cells), "images": IMAGES, "seeds": TEST})
    for seed in TEST:
        measuring = WithData(seed, "test", cells, folder)
        measuring.ends()
        for method in GRIDS:
            for count in COUNTS:
                measuring.merge(count, method, best[f"{count} {method}"])
        for images in IMAGES:
            measuring.polish(images, cells.found["chosen"]["steps"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=ROOT / "docs" / "results" / WITH_DATA)
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "same_base")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    if not args.page:
        measure(Cells(args.cells), args.models)
    write_page(args.cells.with_name("same_base.json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
