"""What a mutation run says: a table by folder, and every survivor with its change."""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.mutation.equivalents import Equivalent
from tests.mutation.mutants import Mutant

ENOUGH = 0.9  # of the mutants that are not equivalent
COLUMNS = ("killed", "timeout", "survived", "equivalent")

Trials = list[tuple[Mutant, dict[str, Any]]]


def tell(trials: Trials, equivalents: list[Equivalent], failed: list[str], options: argparse.Namespace) -> int:
    """Write both files, print the table, and say by the exit code whether it is good enough."""
    wrong = []
    for mutant, result in trials:
        entry = next((entry for entry in equivalents if entry.matches(mutant)), None)
        if entry is not None and result["outcome"] == "survived":
            result |= {"outcome": "equivalent", "reason": entry.reason}
        elif entry is not None:
            wrong.append(f"{_place(mutant)} is listed as equivalent, but {result['by']} notices it")
    table, score = _table(trials)
    lines = [table, "", *(f"- {line}" for line in wrong)]
    if failed:
        lines += [f"Not used, because they fail or are skipped on the unchanged source: {len(failed)} tests."]
    page = ["# Mutants", "", f"Sample {options.sample}, seed {options.seed}, from `{options.only or 'all folders'}`."]
    page += ["", *lines, "", *_survivors(trials)]
    (options.output / "mutants.md").write_text("\n".join(page) + "\n")
    (options.output / "mutants.json").write_text(json.dumps([_row(*trial) for trial in trials], indent=1) + "\n")
    print("\n" + "\n".join(lines))
    print(f"{score:.1%} of those that are not equivalent are killed; every one: {_told(options.output / 'mutants.md')}")
    return int(score < ENOUGH or bool(wrong))


def survivors(output: Path) -> set[tuple[str, str, str, str]]:
    """File, function and change of each mutant that survived the last run that wrote into a folder."""
    if not (output / "mutants.json").exists():
        raise SystemExit(f"{output / 'mutants.json'} is not there; expected a run without --again first")
    rows = json.loads((output / "mutants.json").read_text())
    return {(r["file"], r["function"], r["was"], r["now"]) for r in rows if r["outcome"] == "survived"}


def _table(trials: Trials) -> tuple[str, float]:
    folders = sorted({mutant.file.split("/")[1] for mutant, _ in trials})
    counts = Counter((mutant.file.split("/")[1], result["outcome"]) for mutant, result in trials)
    rows = [[folder, *(counts[folder, column] for column in COLUMNS)] for folder in folders]
    rows.append(["all", *(sum(row[index + 1] for row in rows) for index in range(len(COLUMNS)))])
    text = [f"| folder | {' | '.join(COLUMNS)} | killed |", "|---" * (len(COLUMNS) + 2) + "|"]
    text += [f"| {' | '.join(map(str, row))} | {_share(row):.1%} |" for row in rows]
    return "\n".join(text), _share(rows[-1])


def _share(row: list[Any]) -> float:
    """Killed or never ending, of those that are not equivalent."""
    killed = row[1] + row[2]
    return killed / max(killed + row[3], 1)


def _survivors(trials: Trials) -> list[str]:
    lines = ["## Survivors", ""]
    for mutant, result in trials:
        if result["outcome"] == "survived":
            of = f"{result['tests']} of {result['reached']} tests that reach it ran"
            lines += [f"{_place(mutant)} ({mutant.operator}; {of})", "", "```diff", mutant.diff(), "```", ""]
    return lines


def _row(mutant: Mutant, result: dict[str, Any]) -> dict[str, Any]:
    was, now = mutant.change
    place = {"file": mutant.file, "line": mutant.start[0], "function": mutant.function, "operator": mutant.operator}
    return {**place, "was": was, "now": now, **result}


def _place(mutant: Mutant) -> str:
    return f"`{mutant.file}:{mutant.start[0]}`" + (f" in `{mutant.function}`" if mutant.function else "")


def _told(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
