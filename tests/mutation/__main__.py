"""A mutation run: ``python -m tests.mutation --help``.

Writes ``mutants.json`` and ``mutants.md`` into the output folder. Ends with 1 where fewer than 90 % of the mutants that
are not equivalent are killed, or where one that is listed as equivalent is killed.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutation import warm

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Measure what the tests reach, draw mutants, try each, tell what became of them."""
    options = _options()
    warm.settle()
    # What follows imports numpy and its threads: after the settings.
    from tests.mutation.equivalents import read_equivalents
    from tests.mutation.mutants import sample
    from tests.mutation.reaching import measure
    from tests.mutation.report import survivors, tell

    say("Importing what the tests need, but fusionlab ...")
    warm.warm(warm.HEAVY)
    options.output.mkdir(parents=True, exist_ok=True)
    copies = [warm.Copy(ROOT) for _ in range(options.jobs)]
    try:
        reach = measure(ROOT, copies, options.output / "reach", options.tests, say)
        warm.warm(reach.modules)
        mutants = sample(ROOT, options.sample, options.seed, options.only)
        if options.again:
            survived = survivors(options.output)
            mutants = [mutant for mutant in mutants if (mutant.file, mutant.function, *mutant.change) in survived]
        say(f"{len(reach.tests)} tests pass on the unchanged source; {len(mutants)} mutants")
        shares = enumerate(copies)
        warm.side_by_side(
            partial(_work, mutants[job :: len(copies)], reach, copy, options.budget) for job, copy in shares
        )
        tried: list[Any] = [None] * len(mutants)
        for job, copy in enumerate(copies):
            tried[job :: len(copies)] = [json.loads(line) for line in _told(copy).read_text().splitlines()]
    finally:
        for copy in copies:
            copy.close()
    equivalents = read_equivalents(Path(__file__).with_name("equivalent.toml"))
    return tell(list(zip(mutants, tried, strict=True)), equivalents, reach.failed, options)


def _work(mutants: list[Any], reach: Any, copy: warm.Copy, budget: float) -> None:
    """Try each mutant and write one line about it; in a process of its own."""
    from tests.mutation.trial import try_mutant

    with _told(copy).open("w") as told:
        for mutant in mutants:
            result = try_mutant(mutant, reach, copy, budget)
            told.write(json.dumps(vars(result)) + "\n")
            told.flush()
            print(
                f"{result.outcome:9}{result.seconds:6.1f} s  {mutant.file}:{mutant.start[0]}  {result.by}", flush=True
            )
    return 0


def say(line: str) -> None:
    """Print it now."""
    print(line, flush=True)


def _told(copy: warm.Copy) -> Path:
    return copy.folder / "results.jsonl"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many mutants (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another sample (%(default)s)")
    only = "only files below fusionlab/ whose paths begin with one of these, such as 'merging stages/module.py'"
    parser.add_argument("--only", default="", help=only)
    parser.add_argument("--again", action="store_true", help="only those of the sample that survived the last run")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at once (%(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / ".mutants", help="folder of results and measurements")
    parser.add_argument("--tests", nargs="*", default=(), help="only test files whose path begins with one of these")
    budget = "seconds of tests for each mutant, quickest tests first (%(default)s)"
    parser.add_argument("--budget", type=float, default=120.0, help=budget)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
