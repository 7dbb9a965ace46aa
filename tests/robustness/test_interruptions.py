"""SIGINT and SIGTERM at any moment of real commands: their exit code, one line, nothing left behind."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.parts import one_in
from tests.robustness.cases import OUTPUT
from tests.robustness.client import REPOSITORY, Server
from tests.robustness.jobs import JOBS, unlike

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
# The first and the last are tried in every run, one by each signal.
DELAYS = (0.0, 0.3, 2.5, 1.0)
COUNT = int(os.environ.get("SIGNALS", "16"))


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal by now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & (1 << (number - 1)))


@pytest.mark.parametrize(("number", "delay"), one_in(3, list(zip(itertools.cycle(WORDS), DELAYS, strict=False))))
def test_during_imports(sound: Path, tmp_path: Path, number: int, delay: float) -> None:
    """A command of its own process, so many seconds after it took over its signals: the imports take longer."""
    command = [sys.executable, "-m", "fusionlab.cli", "merge", str(sound / "a"), str(sound / "b"), "--output", OUTPUT]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # The last of those that it handles; before that it is Python that starts, and nothing of ours.
    while not handles(process.pid, signal.SIGHUP):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    time.sleep(delay)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if process.returncode == 0:
        assert (tmp_path / OUTPUT / "model.safetensors").exists(), "a fast machine was done before"
        return
    assert process.returncode == 128 + number
    assert err == f"fusionlab merge: {WORDS[signal.Signals(number)]}; nothing was written half\n"
    # Interrupted after its output had its name, which it has only when it is complete; or before.
    left = [path.name for path in tmp_path.iterdir()]
    assert left in ([], [OUTPUT])
    assert not left or (tmp_path / OUTPUT / "README.md").exists()


@pytest.mark.parametrize("index", range(COUNT))
def test_during_work(server: Server, sound: Path, tmp_path: Path, index: int) -> None:
    """Every command, at a moment drawn over twice the time that most take."""
    name, number = list(JOBS)[index % len(JOBS)], (signal.SIGINT, signal.SIGTERM)[index // len(JOBS) % 2]
    job, moment = JOBS[name], random.Random(f"signal/{index}").uniform(0, 0.8)
    work = job.lay_out(sound, tmp_path)
    before = sorted(path.name for path in work.iterdir())
    outcome = job.run(server, work, job.line(OUTPUT), signals=[(moment, int(number))])
    assert "Traceback" not in outcome.err
    left = [path.name for path in work.iterdir() if path.name not in before]
    assert not list(work.rglob(".*")), "a temporary output was left"
    assert not outcome.outside
    if outcome.code == 0:
        assert left == [OUTPUT], "it was done before"
        return
    assert outcome.code == 128 + number, outcome.err
    told = [line for line in outcome.err.splitlines() if line.startswith("fusionlab")]
    assert told == [f"fusionlab {job.command}: {WORDS[number]}; nothing was written half"]
    if left and not job.goes_on:
        # Interrupted after its output had its name, which it has only when it is complete.
        assert left == [OUTPUT]
        clean = job.lay_out(sound, tmp_path / "clean")
        assert job.run(server, clean, job.line(OUTPUT)).code == 0
        assert not unlike(work / OUTPUT, clean / OUTPUT)
