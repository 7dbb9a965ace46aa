"""Fine-tunes of one base merged by every method: the score on each task, as a share of what its own fine-tune has.

    python benchmarks/same_base.py
    python benchmarks/same_base.py --setting text
    python benchmarks/same_base.py --page

The first command trains what is missing of ViTs for digits in `checkpoints/same_base`, measures what is missing in
`docs/results/same_base.json`, and goes on where it was stopped. Then, as `--page` does alone, it writes
`docs/results/same_base.md` from that file. The second does the same with MiniLM and eight tasks of text, in
`same_base_text`. Hyperparameters are chosen on the validation examples of the tuning models, and the tables are of the
test examples of other models.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from same_base_data_page import part
from same_base_figure import figure
from same_base_page import cell_name, measured, page
from same_base_settings import ROOT, SETTINGS, Family, Setting
from settings import quiet
from torch import Tensor

from fusionlab.atomic import atomic_file
from fusionlab.fusion.heads.own import of_body
from fusionlab.merging import find_method, merge_states
from fusionlab.statistics import Statistics
from fusionlab.statistics.gather import gather

GATHERED = ("gram", "fisher")
# By method the values that are tried, beside the defaults.
FACTORS = [{"lambda_": factor} for factor in (0.7, 1.5, 2.0, 3.0, 4.0)]
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
    "tsv_m": [{"lambda_": factor} for factor in (0.5, 0.7, 1.3, 1.6, 2.0)],
    "iso_c": [{"lambda_": factor} for factor in (0.5, 0.7, 1.3, 1.6, 2.0, 3.0)],
    "iso_cts": [{"lambda_": factor, "common": share} for factor in (0.7, 1.0, 1.3, 1.6) for share in (0.5, 0.8)],
    "knots": [{"density": kept, "lambda_": factor} for kept in (0.2, 0.5, 1.0) for factor in (1.0, 1.5)],
    "ace": [{"epsilon": small, "lambda_": factor} for small in (1e-2, 1e-1, 1.0) for factor in (0.7, 1.0)],
    "wudi": [{"solver": "exact", "lambda_": factor} for factor in (0.7, 0.85, 1.0, 1.2)],
    "fisher": [],
    "regmean": [{"alpha": factor} for factor in (0.5, 0.7, 0.99)],
    "regmean_pp": [{"alpha": factor} for factor in (0.5, 0.7, 0.99)],
}


class Measuring:
    """The cells of one seed.

    Args:
        setting: of which fine-tunes.
        seed: of the models.
        split: that they are measured on.
        cells: what was measured.
        args: of the command.
    """

    def __init__(self, setting: Setting, seed: int, split: str, cells: Cells, args: argparse.Namespace) -> None:
        self.setting, self.seed, self.split, self.cells, self._args = setting, seed, split, cells, args

    @cached_property
    def models(self) -> Family:
        """The models of the seed."""
        return self.setting.family(self.seed, self._args)

    @cached_property
    def statistics(self) -> list[dict[str, Statistics]]:
        """Gram matrices and Fisher information of every fine-tune's body on its own training inputs, without labels."""
        models, found = self.models, []
        for place, model in enumerate(models.tuned):
            known, body = gather(model, models.inputs(place), GATHERED), models.body(model)
            found.append({kind: of_body(one, body) for kind, one in known.items()})
        return found

    def scores(self, body: dict[str, Tensor], count: int, split: str | None = None) -> list[float]:
        """What a body reaches on each of the first tasks, under the heads of their fine-tunes."""
        models, where = self.models, split or self.split
        return [models.score(models.under(body, place), place, where) for place in range(count)]

    def begin(self, wanted: Iterable[str]) -> None:
        """Measure what each fine-tune reaches on its task, and the base model with that fine-tune's head.

        Where it was measured with other models of the same seed, as another processor trains them, all other cells of
        the seed are dropped, to be measured with these. Nothing is done where nothing is missing.

        Args:
            wanted: names of the seed's cells.
        """
        name = f"{self.split} {self.seed} ends"
        if all(one in self.cells.found for one in (name, *wanted)):
            return
        models = self.models
        own = [models.score(model, place, self.split) for place, model in enumerate(models.tuned)]
        found = {"own": own, "base": self.scores(models.body(models.base), len(self.setting.names))}
        self.cells.begin(f"{self.split} {self.seed} ", found)

    def merge(self, count: int, method: str, given: dict[str, Any]) -> None:
        """The score on each of the first tasks of their merge.

        Args:
            count: of tasks.
            method: of merging.
            given: its hyperparameters.
        """
        name = cell_name(self.split, self.seed, count, method, given)
        if name in self.cells.found:
            return
        known: dict[str, Any] = {}
        needs, models = find_method(method).requires(**given), self.models
        if "inputs" in needs:
            known |= {"inputs": [models.inputs(place) for place in range(count)], "model": models.under}
        if set(needs) & set(GATHERED):
            known["statistics"] = self.statistics[:count]
        else:
            known["base"] = models.body(models.base)
        start, bodies = time.perf_counter(), [models.body(model) for model in models.tuned[:count]]
        merged = merge_states(bodies, method, seed=self.seed, **known, **given)
        seconds = time.perf_counter() - start
        scores = self.scores(merged, count)
        self.cells.keep(name, {"scores": scores, "seconds": seconds})
        print(name, f"{fmean(scores):.3f}", file=sys.stderr, flush=True)


def chosen(
    cells: Cells, seeds: Sequence[int], count: int, method: str, tried: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The hyperparameters with the best share of the fine-tunes' scores on the tuning models' validation examples.

    Args:
        cells: what was measured.
        seeds: of the tuning models.
        count: of tasks.
        method: of merging.
        tried: hyperparameters; one alone needs no cells.
    """

    def reached(given: dict[str, Any]) -> float:
        values = []
        for seed in seeds:
            own = cells.found[f"validation {seed} ends"]["own"]
            scores = cells.found[cell_name("validation", seed, count, method, given)]["scores"]
            values += [score / end for score, end in zip(scores, own, strict=False)]
        return fmean(values)

    return tried[0] if len(tried) == 1 else max(tried, key=reached)


def measure(setting: Setting, cells: Cells, args: argparse.Namespace) -> None:
    """Measure what is missing: every setting on the tuning models, then on the test models what is best there."""
    grids = {method: [{}, *grid] for method, grid in GRIDS.items()}
    for seed in setting.tuning:
        _merge(Measuring(setting, seed, "validation", cells, args), grids, lambda _, method: grids[method])
    best = {
        f"{count} {method}": chosen(cells, setting.tuning, count, method, grid)
        for count in setting.counts
        for method, grid in grids.items()
    }
    cells.keep("chosen", best)

    def both(count: int, method: str) -> list[dict[str, Any]]:
        return [{}, best[f"{count} {method}"]]

    for seed in setting.test:
        _merge(Measuring(setting, seed, "test", cells, args), grids, both)


def _merge(measuring: Measuring, methods: Iterable[str], tried: Callable[[int, str], Sequence[dict[str, Any]]]) -> None:
    """Measure what is missing of a seed.

    Args:
        measuring: of the seed.
        methods: of merging.
        tried: hyperparameters of each number of tasks and method.
    """
    counts = measuring.setting.counts
    wanted = [(count, method, given) for method in methods for count in counts for given in tried(count, method)]
    measuring.begin(cell_name(measuring.split, measuring.seed, *one) for one in wanted)
    for one in wanted:
        measuring.merge(*one)


def write_page(setting: Setting, folder: Path) -> None:
    """Write the page and its picture beside the cells, with what `same_base_data.py` measured where that is there.

    Args:
        setting: of which fine-tunes.
        folder: of the cells.
    """
    file = folder / f"{setting.file}.json"
    cells, more = Cells(file), Cells(with_data_file(file))
    text = page(cells.found, list(GRIDS), setting)
    if "chosen" in more.found:
        text += "\n" + part(more.found, cells.found, setting)
    with atomic_file(file.with_suffix(".md"), overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    with atomic_file(file.with_suffix(".png"), overwrite=True) as temporary:
        temporary.write_bytes(figure(cells.found, measured(cells.found, list(GRIDS), setting), setting))


def with_data_file(file: Path) -> Path:
    """The file of what `same_base_data.py` measures, beside that of the other cells."""
    return file.with_stem(f"{file.stem}_data")


def run(
    work: Callable[[Setting, Cells, argparse.Namespace], None], file_of: Callable[[Path], Path], doc: str | None
) -> int:
    """The command: measure what is missing, unless only the page is asked for, and write the page.

    Args:
        work: measures.
        file_of: the file of its cells, from that of this benchmark's.
        doc: of the command.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=SETTINGS, default="digits", help="which fine-tunes")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and pages")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints", help="folder of end models")
    parser.add_argument("--texts", type=Path, default=ROOT.parent / "shared" / "data", help="folder of data sets")
    parser.add_argument("--minilm", default=str(ROOT / "checkpoints" / "minilm"), help="folder or hub id of MiniLM")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    setting = SETTINGS[args.setting]
    if not args.page:
        work(setting, Cells(file_of(args.results / f"{setting.file}.json")), args)
    write_page(setting, args.results)
    return 0


if __name__ == "__main__":
    sys.exit(run(measure, lambda file: file, __doc__))
