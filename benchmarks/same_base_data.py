"""Fine-tunes of one base merged with data at hand: unlabelled inputs, labelled ones, and a polish after the merge.

    python benchmarks/same_base_data.py
    python benchmarks/same_base_data.py --setting text
    python benchmarks/same_base_data.py --page

The first command trains what is missing in `checkpoints/same_base`, as `same_base.py` does, measures what is missing in
`docs/results/same_base_data.json`, and goes on where it was stopped. Then, as `--page` does alone, it writes
`docs/results/same_base.md` from that file and `same_base.json`. The second does the same with MiniLM and eight tasks of
text. What is chosen is chosen on the validation examples of the tuning models.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from same_base import Measuring, chosen, run, with_data_file
from same_base_data_page import polish_name
from same_base_page import cell_name
from same_base_settings import SEARCHED, Setting

from fusionlab.fusion import TaskModels
from fusionlab.merging import merge_states
from fusionlab.polish import PolishOptions, polish
from fusionlab.search import SearchOptions, Space, Trials
from fusionlab.trainers import quiet_factory

# What is polished.
START = "tsv_m"


class WithData(Measuring):
    """The cells of one seed."""

    def merge(self, count: int, method: str, given: dict[str, Any]) -> None:
        """The score on each of the first tasks of their merge, which may be searched for first."""
        if method.endswith(SEARCHED):
            self._search(count, method, given)
        else:
            super().merge(count, method, given)

    def _search(self, count: int, named: str, given: dict[str, Any]) -> None:
        """The merge with the settings that a search found best on the validation examples, with labels."""
        name, method = cell_name(self.split, self.seed, count, named, given), named.removesuffix(SEARCHED)
        if name in self.cells.found:
            return
        models = self.models
        bodies, base = [models.body(model) for model in models.tuned[:count]], models.body(models.base)
        own = [models.score(model, place, "validation") for place, model in enumerate(models.tuned[:count])]
        options = SearchOptions(**given, seed=self.seed)
        trials = Trials(Space.of(method, count, options, names=list(base)), options)
        start, best = time.perf_counter(), {}
        while (settings := trials.ask()) is not None:
            how = settings.hyperparameters
            merged = merge_states(bodies, method, settings.weights, base=base, seed=self.seed, **how)
            found = self.scores(merged, count, "validation")
            trials.tell(fmean(score / end for score, end in zip(found, own, strict=True)))
            if trials.done[-1] is trials.found().best:
                best = merged
        seconds = time.perf_counter() - start
        scores = self.scores(best, count)
        self.cells.keep(name, {"scores": scores, "seconds": seconds, "trials": [one.score for one in trials.done]})
        print(name, f"{fmean(scores):.3f}", file=sys.stderr, flush=True)

    def polish(self, given: dict[str, Any], inputs: int, steps: int, rate: float | None) -> None:
        """The score on each task of a merge of all that was polished on so many inputs of each, without labels.

        Args:
            given: hyperparameters of the merge.
            inputs: of each task.
            steps: of the distillation.
            rate: of learning; its default if None.
        """
        count = max(self.setting.counts)
        name = polish_name(self.split, self.seed, count, START, inputs, steps, rate)
        if name in self.cells.found:
            return
        models = self.models
        body = merge_states([models.body(one) for one in models.tuned], START, base=models.body(models.base), **given)
        merged = TaskModels([models.under(body, place) for place in range(count)])
        batches = [models.inputs(place, inputs) for place in range(count)]
        start = time.perf_counter()
        options = PolishOptions(steps=steps, learning_rate=rate, seed=self.seed, **self.setting.polish)
        trainer = quiet_factory(self.setting.passes)
        found = polish(merged.sharing(), models.tuned, batches, options, trainer, answering=TaskModels.answering)
        seconds = time.perf_counter() - start
        scores = [models.score(model, place, self.split) for place, model in enumerate(found.tasks)]
        self.cells.keep(name, {"scores": scores, "seconds": seconds})
        print(name, f"{fmean(scores):.3f}", file=sys.stderr, flush=True)


def polish_of(setting: Setting, cells: Cells) -> tuple[int, float | None]:
    """Steps and rate of the curve: the best on the tuning models' validation examples, or the only ones."""
    tried, count = setting.polishes, max(setting.counts)

    def reached(how: tuple[int, float | None]) -> float:
        names = [polish_name("validation", seed, count, START, setting.tried_on, *how) for seed in setting.tuning]
        return fmean(score for name in names for score in cells.found[name]["scores"])

    return tried[0] if len(tried) == 1 else max(tried, key=reached)


def measure(setting: Setting, cells: Cells, args: argparse.Namespace) -> None:
    """Measure what is missing: on the tuning models what is chosen by, then on the test models what was chosen."""
    known = Cells(args.results / f"{setting.file}.json").found["chosen"]
    grids = {
        (count, method): grid or [known[f"{count} {method}"]]
        for method, grid in setting.with_data.items()
        for count in setting.counts
    }
    start, every = grids[max(setting.counts), START][0], setting.polishes
    several = [(*key, given) for key, grid in grids.items() if len(grid) > 1 for given in grid]
    tried = [(setting.tried_on, *how) for how in every] if len(every) > 1 else []
    if tried:
        several.append((max(setting.counts), START, start))
    for seed in setting.tuning:
        _measure(WithData(setting, seed, "validation", cells, args), several, start, tried)
    best: dict[str, Any] = {
        f"{count} {method}": chosen(cells, setting.tuning, count, method, grid)
        for (count, method), grid in grids.items()
    }
    steps, rate = polish_of(setting, cells)
    cells.keep("chosen", best | {"steps": steps, "rate": rate, "inputs": setting.inputs})
    for seed in setting.test:
        single = [(count, method, best[f"{count} {method}"]) for count, method in grids]
        polished = [(inputs, steps, rate) for inputs in setting.inputs]
        _measure(WithData(setting, seed, "test", cells, args), single, start, polished)


def _measure(
    measuring: WithData,
    merged: Sequence[tuple[int, str, dict[str, Any]]],
    start: dict[str, Any],
    polished: Sequence[tuple[int, int, float | None]],
) -> None:
    """Measure what is missing of a seed.

    Args:
        measuring: of the seed.
        merged: number of tasks, method and hyperparameters of each merge.
        start: hyperparameters of the merge that is polished.
        polished: inputs of each task, steps and rate of each polish.
    """
    split, seed, count = measuring.split, measuring.seed, max(measuring.setting.counts)
    names = [cell_name(split, seed, *one) for one in merged]
    measuring.begin([*names, *(polish_name(split, seed, count, START, *one) for one in polished)])
    for one in merged:
        measuring.merge(*one)
    for one_polish in polished:
        measuring.polish(start, *one_polish)


if __name__ == "__main__":
    sys.exit(run(measure, with_data_file, __doc__))
