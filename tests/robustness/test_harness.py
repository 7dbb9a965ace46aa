"""The harness sees what it is there to see: each thing that is demanded is broken once on purpose."""

import random
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.robustness import damaged_data, demands, strict_reader
from tests.robustness.cases import Case, Place, lay_out
from tests.robustness.client import Outcome, Server
from tests.robustness.generator import KINDS

HERE = "tests.robustness.misbehaving"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_writing_outside_is_seen(server: Server, work: Path) -> None:
    """Also of a file that is gone in the end; not of one that may be written."""
    for function in ("writes", "writes_and_removes"):
        outcome = server.call(f"{HERE}:{function}", work, [work / "mine"], path=str(work / "other"))
        assert next(line.split()[1] for line in outcome.outside) == str(work / "other")
    outcome = server.call(f"{HERE}:writes", work, [work / "mine"], path=str(work / "mine"))
    assert (outcome.code, outcome.outside, outcome.changes) == (0, (), (f"open {work / 'mine'}",))


def test_connections_and_programs_are_seen(server: Server, work: Path) -> None:
    """A connection fails and is told; a program runs and is told."""
    assert server.call(f"{HERE}:connects", work, []).network
    assert server.call(f"{HERE}:starts_a_program", work, []).programs


def test_memory_and_time_are_bounded(server: Server, work: Path) -> None:
    """Whoever takes more is stopped."""
    outcome = server.call(f"{HERE}:takes", work, [], bytes=2**28, size=2**29)
    assert (outcome.stopped, outcome.code) == ("memory", -signal.SIGKILL)
    outcome = server.call(f"{HERE}:computes", work, [], seconds=0.5, duration=30)
    assert (outcome.stopped, outcome.code) == ("time", -signal.SIGKILL)
    # One that waits takes nothing of a processor.
    outcome = server.call(f"{HERE}:sleeps", work, [], seconds=0.1, duration=30)
    assert (outcome.stopped, outcome.code) == ("time", -signal.SIGKILL)
    assert server.call(f"{HERE}:sleeps", work, [], seconds=0.5, duration=1).stopped is None


def test_failures_are_complained_about(server: Server, work: Path) -> None:
    """A traceback, an exit code that is not allowed, several lines, characters that no terminal should be sent."""
    outcome = server.call(f"{HERE}:fails", work, [])
    assert {"exit code 99", "a traceback"} <= set(demands.of_any(outcome, "merge"))

    def said(err: str, **changes: object) -> list[str]:
        fields = {"code": 2, "out": "", "err": err, "seconds": 1.0, "grown": 0, "stopped": None, "network": (),
                  "programs": (), "outside": (), "changes": (), "left": ()}  # fmt: skip
        return demands.of_any(Outcome(**(fields | changes)), "merge")  # type: ignore[arg-type]

    assert said("fusionlab merge: error: x is wrong\n") == []
    for wrong in ("", "x\n", "fusionlab merge: error: x\nmore\n", "fusionlab merge: error: \x1b[31mx\n"):
        assert said(wrong)
    assert said(f"fusionlab merge: error: {'x' * 2000}\n")
    assert said("fusionlab merge: error: x\n", network=("example.org",))
    assert said("", code=70)


def test_accepted_damage_is_complained_about(
    server: Server, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge of sound models, said to be damaged: it must be refused, or judged, or leaves what it should not."""

    def tried(case: Case) -> tuple[str, ...]:
        def make(seed: int, index: int, sound: Path, folder: Path) -> tuple[str, Case, object]:
            _, _, place = lay_out(seed, index, sound, folder)
            shutil.rmtree(place.work)
            place.work.mkdir()
            place.copy("a", "b")
            return "none", case, place

        monkeypatch.setattr(demands, "lay_out", make)
        return demands.try_case(server, sound, 0, 0, tmp_path / "case").complaints

    line = ["merge", "a", "b", "--output"]
    assert tried(Case([*line, "out"])) == ()
    assert tried(Case([*line, "out"], must_refuse=True)) == ("damage that is plain to see was accepted",)
    assert tried(Case([*line, "out"], judge=lambda work: "of the moon")) == ("accepted, although of the moon",)
    assert any("elsewhere" in complaint for complaint in tried(Case([*line, "elsewhere"])))


def test_strict_reader(sound: Path, tmp_path: Path) -> None:
    """It takes every undamaged checkpoint for sound, and none that is damaged in its header, its numbers or its end."""
    for name in ("a", "sharded_a", "timm_a", "bert_a", "bin_a", "binsharded_a", "lightning_a.ckpt"):
        assert strict_reader.complaint_about_weights(sound / name, sound / name) == ""
    content = (sound / "a" / "model.safetensors").read_bytes()
    (tmp_path / "a").mkdir()
    for damaged in (content[:-1], content + b"x", content[:-4] + b"\x00\x00\xc0\x7f", b"\xff" * 8 + content[8:]):
        (tmp_path / "a" / "model.safetensors").write_bytes(damaged)
        assert strict_reader.complaint_about_weights(tmp_path / "a", sound / "a")
    (tmp_path / "a" / "model.safetensors").write_bytes(content[:-4] + bytes([content[-4] ^ 1]) + content[-3:])
    assert strict_reader.complaint_about_weights(tmp_path / "a", sound / "a") == "", "a number like any other"


def test_cases_follow_from_seed_and_index(sound: Path, tmp_path: Path) -> None:
    """Two lay-outs of one case are the same command over the same bytes."""

    def laid_out(index: int, folder: Path) -> tuple[list[str], dict[str, bytes]]:
        _, case, place = lay_out(7, index, sound, folder)
        files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(place.work.rglob("*")) if p.is_file()}
        shutil.rmtree(folder)
        return case.argv, {name: content.replace(str(folder).encode(), b"") for name, content in files.items()}

    for index in range(len(KINDS)):
        assert laid_out(index, tmp_path / "case") == laid_out(index, tmp_path / "case"), index


def test_rows_that_a_format_has_no_type_for_are_written_as_text(sound: Path, tmp_path: Path) -> None:
    """A mapping of nothing in every row, for which Parquet has none: the case goes on, and the run with it."""
    (tmp_path / "work" / "data").mkdir(parents=True)
    place = Place(sound, tmp_path, random.Random(0))
    for value in ({}, {"a": {}}, 10**30, [[]]):
        path = damaged_data.written_rows(place, "parquet", [{"text": value, "label": 1, "split": "train"}] * 2)
        assert pq.read_table(place.work / path).num_rows == 2
