"""A disk that fills while a command writes: exit code 2, one sentence that names the output, and nothing is left."""

import functools
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parts import one_in
from tests.robustness.cases import OUTPUT
from tests.robustness.client import Outcome, Server
from tests.robustness.jobs import JOBS, Job, tree

SIZES = int(os.environ.get("DISKS", "2"))
# A third of all commands by each of the two, and all by both where more sizes are asked for.
FILLED, LIMITED = (list(JOBS) if SIZES > 2 else one_in(3, list(JOBS)[at:]) for at in (0, 1))
VOLUME = "volume"
FULL = ("no space is left on its disk", "the disk of", "(No space left on device)")
TOO_LARGE = ("the system allows no file of this size", "(File too large)")


@dataclass(frozen=True)
class Need:
    """What an undisturbed run of a command writes, in bytes."""

    whole: int
    largest: int


def line(job: Job, output: Path) -> list[str]:
    """The whole command, from beside its working folder."""
    return job.line(str(output))


@pytest.fixture(scope="session")
def needs(server: Server, sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Need]:
    """Runs each command, once, where there is space."""

    @functools.cache
    def measure(name: str) -> Need:
        job = JOBS[name]
        work = job.lay_out(sound, tmp_path_factory.mktemp(name))
        outcome = job.run(server, work, job.line(OUTPUT))
        assert outcome.code == 0, outcome.err
        output = work / OUTPUT
        files = [output] if output.is_file() else [file for file in output.rglob("*") if file.is_file()]
        sizes = [file.stat().st_size for file in files]
        return Need(sum(sizes), max(sizes))

    return measure


def fractions(count: int) -> list[float]:
    """From a disk that holds nothing to one that lacks a page."""
    return [(index + 0.5) / count for index in range(count)]


def judge(outcome: Outcome, command: str, output: str, words: tuple[str, ...]) -> None:
    """One sentence of the right kind, which names the output."""
    told = [text for text in outcome.err.splitlines() if text.startswith("fusionlab")]
    assert outcome.code == 2, outcome.err
    assert "Traceback" not in outcome.err
    assert "Exception" not in outcome.err
    assert len(told) == 1, outcome.err
    assert told[0].startswith(f"fusionlab {command}: error: {output}"), told[0]
    assert any(text in told[0] for text in words), told[0]
    assert not outcome.outside


@pytest.fixture(scope="session")
def mounts(server: Server, tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether a small file system may be mounted here."""
    folder = tmp_path_factory.mktemp("mounts")
    (folder / VOLUME).mkdir()
    volume = [str(folder / VOLUME), 65536]
    return server.call("tests.robustness.server:nothing", folder, [folder], volume=volume).code == 0


@pytest.mark.parametrize("name", FILLED)
def test_full_disk(
    server: Server, sound: Path, tmp_path: Path, mounts: bool, needs: Callable[[str], Need], name: str
) -> None:
    """Sizes of a file system of its own, whose free space is told (half of them) or filled by somebody else."""
    if not mounts:
        pytest.skip("no file system may be mounted here")
    job = JOBS[name]
    need = needs(name)
    work = job.lay_out(sound, tmp_path)
    inputs = tree(work)
    volume = tmp_path / VOLUME
    volume.mkdir()
    for index, fraction in enumerate(fractions(SIZES)):
        size = max(4096, int(fraction * need.whole) // 4096 * 4096)
        outcome = server.run(
            line(job, volume / OUTPUT), work, [volume], volume=[str(volume), size], hide_free_space=bool(index % 2),
            empty_pictures=True,
        )  # fmt: skip
        judge(outcome, job.command, str(volume / OUTPUT), FULL)
        if not job.goes_on:
            assert not outcome.left, outcome.left
        assert not [path for path in outcome.left if "/." in path.removeprefix(str(volume))], "a temporary output"
    assert tree(work) == inputs


@pytest.mark.parametrize("name", LIMITED)
def test_file_size_limit(server: Server, sound: Path, tmp_path: Path, needs: Callable[[str], Need], name: str) -> None:
    """Limits on the size of a file, below that of the largest one that is written: half as many as sizes of a disk."""
    assert hasattr(signal, "SIGXFSZ")
    job = JOBS[name]
    need = needs(name)
    work = job.lay_out(sound, tmp_path)
    inputs = tree(work)
    for fraction in fractions((SIZES + 1) // 2):
        outcome = job.run(server, work, job.line(OUTPUT), file_size=max(1, int(fraction * need.largest)))
        judge(outcome, job.command, OUTPUT, TOO_LARGE)
        found = tree(work)
        assert {file: digest for file, digest in found.items() if not file.startswith(OUTPUT)} == inputs
        if not job.goes_on:
            assert found == inputs
        assert not list(work.rglob(".*"))
        shutil.rmtree(work / OUTPUT, ignore_errors=True)
