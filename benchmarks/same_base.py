"""Fine-tunes of one base merged by every method: accuracy on each task, as a share of what its own fine-tune has.

    python benchmarks/same_base.py
    python benchmarks/same_base.py --page

The first command trains what is missing in `checkpoints/same_base`, measures what is missing in
`docs/results/same_base.json`, and goes on where it was stopped. Then, as the second does alone, it writes
`docs/results/same_base.md` from that file. Hyperparameters are chosen on the validation images of the tuning models,
and the tables are of the test images of other models.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from same_base_data_page import part
from same_base_models import TASKS, Family, Task, accuracy, body_of, family, splits
from same_base_page import cell_name, page
from settings import quiet
from torch import Tensor

from fusionlab.atomic import atomic_file
from fusionlab.merging import find_method, merge_states
from fusionlab.models import with_state
from fusionlab.statistics import Statistics
from fusionlab.statistics.gather import gather

ROOT = Path(__file__).parents[1]
TUNING, TEST = (11, 12), (1, 2, 3, 4, 5)
COUNTS = (4, 8)
GATHERED = ("gram", "fisher")
WITH_DATA = "same_base_data.json"
# By method the values that are tried, beside the defaults.
FACTORS = [{"lambda_": factor} for factor in (0.7, 1.5, 2.0, 3.0)]
GRIDS: dict[str, list[dict[str, Any]]] = {
    "simple": [],
    "task_arithmetic": FACTORS,
    "ties": [{"lambda_": factor, "density": kept} for factor in (0.7, 1.0, 1.5) for kept in (0.1, 0.5)],
    "dare": [{"lambda_": factor, "density": 0.9} for factor in (0.7, 1.0, 1.5)],
    "stock": [],
    "breadcrumbs": [{"lambda_": factor, "density": 0.9, "gamma": 0.01} for factor in (0.7, 1.0, 1.5)] + FACTORS,
    "della": [
        {"lambda_": factor, "density": kept, "epsilon": 0.07, "combination": how}
        for factor, kept, how in ((0.7, 0.7, "ties"), (0.5, 0.9, "ties"), (1.0, 0.9, "linear"), (1.5, 0.9, "linear"))
    ],
    "sce": [{"density": kept, "lambda_": factor} for kept in (0.5, 1.0) for factor in (0.7, 1.0)],
    "consensus": [{"threshold": least, "lambda_": factor} for least in (0.2, 0.4) for factor in (1.0, 1.5, 2.0)],
    "pcb": [{"ratio": share, "lambda_": factor} for share in (0.05, 0.2, 0.5) for factor in (0.8, 1.0)],
    "tsv_m": [{"lambda_": factor} for factor in (0.5, 0.7, 1.3)],
    "iso_c": [{"lambda_": factor} for factor in (0.5, 0.7, 1.3)],
    "iso_cts": [{"lambda_": factor, "common": share} for factor in (0.7, 1.0, 1.3) for share in (0.5, 0.8)],
    "knots": [{"density": kept, "lambda_": factor} for kept in (0.2, 0.5, 1.0) for factor in (1.0, 1.5)],
    "ace": [{"epsilon": small, "lambda_": factor} for small in (1e-2, 1e-1, 1.0) for factor in (0.7, 1.0)],
    "wudi": [{"solver": "exact", "lambda_": factor} for factor in (0.7, 0.85, 1.0, 1.2)],
    "fisher": [],
    "regmean": [{"alpha": factor} for factor in (0.5, 0.7, 0.99)],
    "regmean_pp": [{"alpha": factor} for factor in (0.5, 0.7, 0.99)],
}


class Measuring:
    """The cells of one seed."""

    def __init__(self, seed: int, split: str, cells: Cells, folder: Path) -> None:
        self.seed, self.split, self.cells, self.folder = seed, split, cells, folder
        self.images = splits()
        self._family: Family | None = None
        self._statistics: list[dict[str, Statistics]] = []

    @property
    def models(self) -> Family:
        if self._family is None:
            self._family = family(self.seed, self.folder, self.images)
        return self._family

    @property
    def statistics(self) -> list[dict[str, Statistics]]:
        """Gram matrices and Fisher information of every fine-tune on its own training images, without labels."""
        if not self._statistics:
            for model, task in zip(self.models.tuned, TASKS, strict=True):
                self._statistics.append(gather(model, self.batches(task), GATHERED))
        return self._statistics

    def batches(self, task: Task) -> list[dict[str, Tensor]]:
        """The images that a task was fine-tuned on, without labels."""
        pixels, _ = task.of(self.images["tuned"])
        return [{"pixel_values": part} for part in pixels.split(100)]

    def ends(self) -> None:
        """What each fine-tune reaches on its task, and the base model with that fine-tune's head."""
        name = f"{self.split} {self.seed} ends"
        if name not in self.cells.found:
            images = self.images[self.split]
            own = [accuracy(model, task.of(images)) for model, task in zip(self.models.tuned, TASKS, strict=True)]
            body = body_of(self.models.base)
            base = [self.models.score(body, place, images) for place in range(len(TASKS))]
            self.cells.keep(name, {"own": own, "base": base})

    def merge(self, count: int, method: str, given: dict[str, Any]) -> None:
        """The accuracy on each of the first tasks of their merge."""
        name = cell_name(self.split, self.seed, count, method, given)
        if name in self.cells.found:
            return
        known: dict[str, Any] = {}
        needs = find_method(method).requires(**given)
        tuned = self.models.tuned[:count]
        if "inputs" in needs:
            known["inputs"] = [self.batches(task) for task in TASKS[:count]]
            known["model"] = lambda state, place: with_state(tuned[place], {**tuned[place].state_dict(), **state})
        if set(needs) & set(GATHERED):
            states = [model.state_dict() for model in tuned]
            known["statistics"] = self.statistics[:count]
        else:
            states = [body_of(model) for model in tuned]
            known["base"] = body_of(self.models.base)
        start = time.perf_counter()
        merged = merge_states(states, method, seed=self.seed, **known, **given)
        seconds = time.perf_counter() - start
        scores = [self.models.score(merged, place, self.images[self.split]) for place in range(count)]
        self.cells.keep(name, {"scores": scores, "seconds": seconds})
        print(name, f"{fmean(scores):.3f}", file=sys.stderr, flush=True)


def chosen(cells: Cells, count: int, method: str, tried: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The hyperparameters with the best share of the fine-tunes' accuracy on the tuning models' validation images.

    Args:
        cells: what was measured.
        count: of tasks.
        method: of merging.
        tried: hyperparameters; one alone needs no cells.
    """

    def reached(given: dict[str, Any]) -> float:
        values = []
        for seed in TUNING:
            own = cells.found[f"validation {seed} ends"]["own"]
            scores = cells.found[cell_name("validation", seed, count, method, given)]["scores"]
            values += [score / end for score, end in zip(scores, own, strict=False)]
        return fmean(values)

    return tried[0] if len(tried) == 1 else max(tried, key=reached)


def write_page(file: Path) -> None:
    """Write the page beside the cells, with what `same_base_data.py` measured where that is there.

    Args:
        file: of the cells.
    """
    text, more = page(Cells(file).found, list(GRIDS), COUNTS, TEST), Cells(file.with_name(WITH_DATA))
    if "chosen" in more.found:
        text += "\n" + part(more.found, COUNTS)
    with atomic_file(file.with_suffix(".md"), overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=ROOT / "docs" / "results" / "same_base.json")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "same_base")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    cells = Cells(args.cells)
    if not args.page:
        for seed in TUNING:
            measuring = Measuring(seed, "validation", cells, args.models)
            measuring.ends()
            for method, grid in GRIDS.items():
                for count in COUNTS:
                    for given in [{}, *grid]:
                        measuring.merge(count, method, given)
        best = {
            f"{count} {method}": chosen(cells, count, method, [{}, *GRIDS[method]])
            for count in COUNTS
            for method in GRIDS
        }
        cells.keep("chosen", best)
        for seed in TEST:
            measuring = Measuring(seed, "test", cells, args.models)
            measuring.ends()
            for method in GRIDS:
                for count in COUNTS:
                    measuring.merge(count, method, {})
                    measuring.merge(count, method, best[f"{count} {method}"])
    write_page(args.cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
