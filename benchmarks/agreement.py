"""Pairs that the share of advice's look at inputs was chosen by: what learned matching gains, by how far models agree.

    python benchmarks/agreement.py --sst2 ../shared/data/glue/sst2.parquet

Two fine-tunes of one ViT on digits under two of six transformations each, after 5, 12 or 40 passes, of seeds 401 to
405; and two fine-tunes of a BERT on sentences of SST-2, where their file is given. None of them is in
`benchmarks/advice.py`. Merged by the plain mean as they are, and after learned matching on training inputs without
labels; all else at its default.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from advice_pairs import OF_BASE, Pair, text_tuned, tuned
from same_base_models import TASKS, Task
from settings import Setting, quiet

import fusionlab
from fusionlab.advice import agreement_of

# Passes and learning rate.
LENGTHS = ((5, 5e-4), (40, 3e-3), (12, 1e-3))
QUESTIONS = ("odd or even", "with a loop or without")


def chosen() -> Iterator[tuple[int, int, float, list[Task]]]:
    """Seed, passes, learning rate and tasks of every pair on digits: a part of all, spread over seeds and lengths."""
    images = [task for task in TASKS if task.name not in QUESTIONS]
    for seed in range(401, 406):
        for place, tasks in enumerate(itertools.combinations(images, 2), 1):
            is_kept = (place * 7 + seed) % 2 != 0 if seed < 403 else (place * 5 + seed) % 3 == 0
            if is_kept:
                yield seed, *LENGTHS[(place + seed) % 3], list(tasks)


def pairs(sst2: Path | None) -> Iterator[tuple[str, Pair]]:
    """All pairs with their names."""
    for seed, passes, rate, tasks in chosen():
        name = f"{' and '.join(task.name for task in tasks)}, {passes} passes"
        yield name, Pair(name, seed, OF_BASE, *tuned(seed, passes, rate, tasks))
    for seed in (401, 402) if sst2 is not None else ():
        yield "text", text_tuned(seed, sst2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sst2", type=Path, help="Parquet file with the columns sentence, label and split")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    quiet(args.threads)
    print("| pair | seed | agreement, % | plain mean | after learned | gained |\n|---|---:|---:|---:|---:|---:|")
    for name, pair in pairs(args.sst2):
        setting, seen = Setting(name, [pair.models], pair.test), agreement_of(pair.models, pair.inputs)
        assert seen is not None
        twins = fusionlab.align(pair.models, anchor=1, preset="learned", data=pair.inputs)
        plain, matched = (100 * setting.measure(fusionlab.merge(models)) for models in (pair.models, twins))
        cells = (name, pair.seed, f"{seen.share:.1%}"[:-1], f"{plain:.1f}", f"{matched:.1f}", f"{matched - plain:+.1f}")
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
