"""Seconds of a processor that the first things take, of this checkout and of another one.

    python benchmarks/starting.py MODEL_A MODEL_B --before ../an_older_checkout

Each is run some times in a new process and the least counts, user and system together, so that a busy machine tells
nearly the same as a quiet one.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

START = "import sys; from fusionlab.cli import main; sys.exit(main(sys.argv[1:]))"


def seconds(code: str, arguments: list[str], checkout: Path, runs: int) -> float:
    """The least of some runs of Python code."""
    spent = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            words = [f"{folder}/out" if word == "OUT" else word for word in arguments]
            settings = os.environ | {
                "PYTHONPATH": str(checkout.resolve()),
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
            }
            # From a folder of its own: what lies in the working folder is imported first.
            line = [sys.executable, "-c", code, *words]
            subprocess.run(line, check=True, capture_output=True, env=os.environ | settings, cwd=folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs=2, type=Path)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    models = [str(model.resolve()) for model in args.models]
    tasks = {
        "`fusionlab --help`": (START, ["--help"]),
        "`fusionlab fuse --help`": (START, ["fuse", "--help"]),
        "`import fusionlab`": ("import fusionlab", []),
        "`import fusionlab; fusionlab.fuse`": ("import fusionlab; fusionlab.fuse", []),
        "`fusionlab merge A B --output OUT`": (START, ["merge", *models, "--output", "OUT"]),
        "`fusionlab fuse --ckpts A B --match paper --data Digits --output OUT`": (
            START, ["fuse", "--ckpts", *models, "--match", "paper", "--data", "Digits", "--output", "OUT"],
        ),
    }  # fmt: skip
    print("| | before, s | now, s |\n|---|---:|---:|")
    now = Path(__file__).parents[1]
    for name, (code, arguments) in tasks.items():
        found = [f"{seconds(code, arguments, one, args.runs):.2f}" for one in (args.before, now)]
        print(f"| {name} | {' | '.join(found)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
