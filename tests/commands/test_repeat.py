"""The config that a command leaves beside its output makes the same output again."""

from pathlib import Path

import pytest
import yaml

from fusionlab.commands.repeat import REPEAT
from tests.commands.conftest import Command

LINES = {
    "merge": ["merge", "a", "b", "--method", "slerp", "--weights", "0.3", "0.7"],
    "merge in memory": ["merge", "a", "b", "--method", "pcb", "--base", "middle"],
    "match": ["match", "a", "--anchor", "b", "--layers", "1", "--seed", "3", "--dtype", "float64"],
    "fuse": ["fuse", "--ckpts", "a", "b", "--match", "weights", "--temperatures", "3", "--method", "simple,slerp"],
}


@pytest.mark.parametrize("name", LINES)
def test_the_same_again(
    ckpts: Path, tmp_path: Path, command: Command, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and configs have the same bytes; where to write is not part of the config."""
    monkeypatch.chdir(ckpts)
    first, second = tmp_path / "first", tmp_path / "second"
    line = LINES[name]
    assert command(*line, "--output", first).code == 0
    content = (first / REPEAT).read_text()
    assert not {"output", "overwrite", "config"} & yaml.safe_load(content).keys()
    assert str(tmp_path) not in content
    outcome = command(line[0], "--config", first / REPEAT, "--output", second)
    assert (outcome.code, outcome.err) == (0, "")
    assert (second / REPEAT).read_text() == content
    written = [path.relative_to(first) for path in first.rglob("*.safetensors")]
    assert written
    for path in [*written, *(path.relative_to(first) for path in first.rglob("config.json"))]:
        assert (first / path).read_bytes() == (second / path).read_bytes()


def test_it_is_not_handed_on(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """What was said of one merge is not copied into a merge of that merge."""
    assert command("merge", ckpts / "a", ckpts / "b", "--output", tmp_path / "first").code == 0
    line = ("merge", tmp_path / "first", ckpts / "c", "--method", "slerp", "--output", tmp_path / "second")
    assert command(*line).code == 0
    assert "slerp" in (tmp_path / "second" / REPEAT).read_text()
