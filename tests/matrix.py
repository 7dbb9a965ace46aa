"""The whole suite under other processor capabilities, numbers of threads, orders and hash seeds.

``python -m tests.matrix [RUN ...]`` runs those of `RUNS` that are named, or all of them, one after the other, and ends
with 1 where any failed. The runs cover every value of every column, not every pair of them. Processors without AVX2
leave the second run out and say so.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / ".matrix"


@dataclass(frozen=True)
class Run:
    """One run of the suite.

    Attributes:
        capability: what torch may use of the processor (``ATEN_CPU_CAPABILITY``), or None for all it has.
        threads: of each test process.
        order: a seed for the order of files, classes and tests within them, or None for the order as written.
        hash_seed: ``PYTHONHASHSEED``.
    """

    capability: str | None
    threads: int
    order: int | None
    hash_seed: int

    def __str__(self) -> str:
        order = "as written" if self.order is None else f"seed {self.order}"
        return f"{self.capability or 'all':<10} | {self.threads:>7} | {order:<10} | {self.hash_seed:>9}"


HEAD = "run | capability | threads | order      | hash seed | seconds | result"
RUNS = {
    1: Run("default", threads=1, order=1, hash_seed=1),
    2: Run("avx2", threads=2, order=2, hash_seed=2),
    3: Run(None, threads=2, order=None, hash_seed=3),
    4: Run(None, threads=1, order=None, hash_seed=4),
}


def main() -> int:
    """Run, tell each result when it is there, and all of them at the end."""
    parser = argparse.ArgumentParser(prog="make test-matrix", description=__doc__)
    parser.add_argument("runs", nargs="*", type=int, choices=[*RUNS, []], help=f"some of {', '.join(map(str, RUNS))}")
    parser.add_argument("--tests", nargs="*", default=[], help="folders or files of tests (all)")
    options = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    lines, failed = [], False
    for number in options.runs or RUNS:
        run = RUNS[number]
        started = time.monotonic()
        if run.capability == "avx2" and not _has_avx2():
            passed, result = True, "left out: this processor has no AVX2"
        else:
            passed, result = _suite(run, LOGS / f"{number}.log", options.tests)
        failed |= not passed
        lines.append(f"{number:>3} | {run} | {time.monotonic() - started:>7.0f} | {result}")
        print(lines[-1], flush=True)
    print("", HEAD, *lines, sep="\n")
    return int(failed)


def _suite(run: Run, log: Path, tests: list[str]) -> tuple[bool, str]:
    """Whether every test passed, and pytest's own last line; all it said goes to the log."""
    threads = str(run.threads)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TEST_THREADS": threads, "OMP_NUM_THREADS": threads}
    environment |= {"PYTHONHASHSEED": str(run.hash_seed)}
    environment.pop("ATEN_CPU_CAPABILITY", None)
    if run.capability is not None:
        environment["ATEN_CPU_CAPABILITY"] = run.capability
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests]
    if run.order is not None:
        command += ["--random-order-bucket=module", f"--random-order-seed={run.order}"]
    with log.open("w") as out:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    said = log.read_text().strip().splitlines()
    last = said[-1].strip("= ") if said else "pytest said nothing"
    return done.returncode == 0, last if done.returncode == 0 else f"FAILED: {last}; see {log.relative_to(ROOT)}"


def _has_avx2() -> bool:
    """Asked in a process of its own, in which no variable limits what torch may use."""
    environment = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    command = [sys.executable, "-c", "import torch; print(torch.backends.cpu.get_cpu_capability())"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return said.strip() in ("AVX2", "AVX512")


if __name__ == "__main__":
    raise SystemExit(main())
