"""A command that is killed at any moment leaves its output absent, old or complete, and its inputs as they were."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.robustness.cases import OUTPUT
from tests.robustness.client import Server
from tests.robustness.jobs import JOBS, tree, unlike

KILLED = ("merge", "match", "match by parts", "fuse", "compare")
COUNT = int(os.environ.get("KILLS", "5"))


@dataclass(frozen=True)
class Undisturbed:
    """What a command does when nobody disturbs it.

    Attributes:
        whole: its output.
        old: another output of the same command, to be replaced.
        seconds: how long it takes, by whether it replaces that one.
        changes: how many changes of files it makes, likewise.
    """

    whole: Path
    old: Path
    seconds: dict[bool, float]
    changes: dict[bool, int]


@pytest.fixture(scope="session")
def undisturbed(server: Server, sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Undisturbed]:
    """Runs each command, once, as it is meant to be."""
    known: dict[str, Undisturbed] = {}

    def run(name: str) -> Undisturbed:
        if name not in known:
            job, folder = JOBS[name], tmp_path_factory.mktemp(name)
            work = job.lay_out(sound, folder)
            first = job.run(server, work, job.line(OUTPUT))
            assert first.code == 0, first.err
            shutil.move(work / OUTPUT, folder / "whole")
            assert job.run(server, work, [*job.line(OUTPUT), *job.old]).code == 0
            shutil.copytree(work / OUTPUT, folder / "old")
            again = job.run(server, work, job.line(OUTPUT, overwrite=True))
            assert again.code == 0, again.err
            known[name] = Undisturbed(
                folder / "whole", folder / "old", {False: first.seconds, True: again.seconds},
                {False: len(first.changes), True: len(again.changes)},
            )  # fmt: skip
        return known[name]

    return run


@pytest.mark.parametrize("index", range(COUNT))
def test_killed(
    server: Server, sound: Path, tmp_path: Path, undisturbed: Callable[[str], Undisturbed], index: int
) -> None:
    """SIGKILL, half of the time while an output is replaced; half of the time right at a change of the file system.

    Afterwards the output is not there, the old one or complete; the next run ends well and leaves nothing hidden.
    """
    name = KILLED[index % 5]
    replaces, at_a_change = bool(index % 2), bool(index // 2 % 2)
    draw, job, before = random.Random(f"kill/{index}"), JOBS[name], undisturbed(name)
    work = job.lay_out(sound, tmp_path)
    inputs = tree(work)
    if replaces:
        shutil.copytree(before.old, work / OUTPUT)
    if at_a_change:
        # The last ones are the renames and what tidies up after them.
        count = before.changes[replaces]
        kill = {"kill_at": count - draw.randrange(min(8, count)) if draw.random() < 0.5 else draw.randint(1, count)}
        outcome = job.run(server, work, job.line(OUTPUT, replaces), **kill)
    else:
        moment = draw.uniform(0, 1.1 * before.seconds[replaces])
        outcome = job.run(server, work, job.line(OUTPUT, replaces), signals=[(moment, int(signal.SIGKILL))])
    assert outcome.code in (0, -signal.SIGKILL), outcome.err
    assert not outcome.outside
    assert_absent_old_or_complete(work / OUTPUT, before, replaces, job.goes_on)

    again = job.run(server, work, job.line(OUTPUT, overwrite=True))
    assert again.code == 0, again.err
    assert not unlike(work / OUTPUT, before.whole)
    assert {file: digest for file, digest in tree(work).items() if not file.startswith(OUTPUT)} == inputs
    hidden = [str(path.relative_to(work)) for path in work.rglob(".*")]
    assert not hidden, "what the killed run left behind"


def assert_absent_old_or_complete(output: Path, before: Undisturbed, replaces: bool, goes_on: bool) -> None:
    """What a killed run may leave under the name of its output; a grid's folder fills file by file."""
    if not output.exists():
        assert not replaces, "there was an output, and there is none now"
        return
    if goes_on:
        for file in output.rglob("*.json"):
            if not any(part.startswith(".") for part in file.relative_to(output).parts):
                json.loads(file.read_text())
        return
    if tree(output) != tree(before.old):
        assert not unlike(output, before.whole)
