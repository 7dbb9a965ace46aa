"""`fusionlab fuse` refuses options before it reads a model, where the matching is still to be chosen, too."""

from pathlib import Path

import pytest

from tests.commands.conftest import Command


@pytest.mark.parametrize("options", [["--sweeps", "0"], ["--anchor", "2"], ["--rescale", "on"], ["--plane", "1"]])
def test_wrong_options_are_refused_before_models_are_read(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr("fusionlab.commands.parsing.read_all", lambda *_: pytest.fail("models were read"))
    outcome = command("fuse", "--ckpts", ckpts / "a", ckpts / "b", *options, "--output", tmp_path / "out")
    assert outcome.code == 2, outcome.err


def test_what_one_preset_takes_is_not_refused_for_another(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """All are matched to their mean by the preset that is chosen, though not by every one that has the option."""
    line = ["--ckpts", ckpts / "a", ckpts / "b", "--towards", "mean", "--steps", 2, "--output", tmp_path / "out"]
    outcome = command("fuse", *line)
    assert outcome.code == 0, outcome.err
    assert "towards mean" in (tmp_path / "out" / "merged" / "README.md").read_text()
