"""What reports and cards say of a matching is what was done: a start that was left open is named."""

from pathlib import Path

import pytest

from fusionlab.cli import main
from tests.commands.conftest import Command
from tests.commands.test_fuse_config import at, config

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
__all__ = ["at"]


def check(file: Path) -> None:
    text = file.read_text()
    assert "start annealed;" in text
    assert "start auto;" not in text


@pytest.mark.parametrize("options", [("weights", "--start", "auto"), ("learned", "--steps", "1", "--batch_size", "4")])
def test_match_names_the_start(ckpts: Path, tmp_path: Path, command: Command, options: tuple[str, ...]) -> None:
    """From files and in memory; on the anchor's card too."""
    twin = tmp_path / "twin"
    outcome = command("match", ckpts / "a", "--anchor", ckpts / "b", "--match", *options, "--output", twin)
    assert outcome.code == 0
    for name in "ab":
        check(twin / name / "README.md")


def test_fuse_names_the_start(ckpts: Path, at: Path, command: Command) -> None:
    ends = ("--ckpts", ckpts / "a", ckpts / "b", "--match", "weights", "--start", "auto", "--polish", "1")
    assert command("fuse", *ends, "--output", at / "by_flags").code == 0
    matching = {"weights": {"start": "auto"}}
    assert main(["fuse", "--config", str(config(ckpts, at, model={"match": matching}))]) == 0
    for output in (at / "by_flags", at / "out"):
        for file in ("report.html", "merged/README.md"):
            check(output / file)
