"""`--push` uploads what a command has written, once it is complete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkpoints.hub_stand_in import Hub, asked
from tests.commands.conftest import Command


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A stand-in that the library asks, with a token that it knows."""
    yield from asked(monkeypatch)


def uploaded(folder: Path) -> dict[str, bytes]:
    """All files of an output but the config that repeats the command, which holds paths."""
    kept = (path for path in folder.rglob("*") if path.is_file() and path.name != "fusionlab.yaml")
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.mark.parametrize("name", ["merge", "merge in memory", "match", "fuse"])
def test_the_output_is_uploaded(ckpts: Path, tmp_path: Path, command: Command, hub: Hub, name: str) -> None:
    """The repository holds the files of the output; of a fusion those of the merged model."""
    a, b, out = ckpts / "a", ckpts / "b", tmp_path / "out"
    line = {
        "merge": ["merge", a, b],
        "merge in memory": ["merge", a, b, "--method", "pcb", "--base", ckpts / "middle"],
        "match": ["match", a, "--anchor", b],
        "fuse": ["fuse", "--ckpts", a, b, "--match", "weights"],
    }[name]
    outcome = command(*line, "--push", "me/model", "--output", out)
    assert outcome.code == 0, outcome.err
    assert f"Uploaded to {hub.address}/me/model" in outcome.out
    assert hub.files["me/model"] == uploaded(out / "merged" if name == "fuse" else out)
    assert hub.private == {"me/model": True}
    assert (out / "fusionlab.yaml").is_file()
    assert not any(str(ckpts).encode() in content for content in hub.files["me/model"].values())
    assert all("push" not in path.read_text() for path in out.rglob("fusionlab.yaml"))


@pytest.mark.parametrize("name", ["merge", "match"])
def test_a_file_is_no_repository(ckpts: Path, tmp_path: Path, command: Command, hub: Hub, name: str) -> None:
    """What becomes one file is refused before any work, and a fusion of such files is not, which has a folder."""
    a, b = ckpts / "lightning_a.ckpt", ckpts / "lightning_b.ckpt"
    line = ["merge", a, b] if name == "merge" else ["match", a, "--anchor", b]
    outcome = command(*line, "--push", "me/model", "--output", tmp_path / "out.ckpt")
    assert (outcome.code, "is one file; expected checkpoint folders with --push" in outcome.err) == (2, True)
    assert hub.requests == []
    assert list(tmp_path.iterdir()) == []


def test_a_fusion_of_a_config_is_uploaded(
    ckpts: Path, tmp_path: Path, command: Command, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a logger leaves nothing beside its output: a config of the user's own may be called config.yaml."""
    monkeypatch.chdir(tmp_path)
    config: dict[str, Any] = {"model": {"models": {name: str(ckpts / name) for name in "ab"}, "match": "none"}}
    config |= {"output": str(tmp_path / "out"), "trainer": {"accelerator": "cpu", "logger": False}}
    config["data"] = {"class_path": "fusionlab.data.Digits", "init_args": {"classes": [0, 1]}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    outcome = command("fuse", "--config", tmp_path / "mine.yaml", "--push", "me/model")
    assert outcome.code == 0, outcome.err
    assert hub.files["me/model"] == uploaded(tmp_path / "out" / "merged")
    assert "push" not in (tmp_path / "out" / "fusionlab.yaml").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml", "out"]


def test_nothing_is_uploaded_of_what_is_refused(ckpts: Path, tmp_path: Path, command: Command, hub: Hub) -> None:
    """Neither of models that do not fit, nor to a repository that is there; that one ends before any work."""
    outcome = command("merge", ckpts / "a", ckpts / "bert_a", "--push", "me/model", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert hub.changes == []
    hub.files["me/model"] = {}
    outcome = command("merge", ckpts / "a", ckpts / "b", "--push", "me/model", "--output", tmp_path / "out")
    assert (outcome.code, "me/model exists on the hub already" in outcome.err) == (2, True)
    assert hub.changes == []
    assert not (tmp_path / "out").exists()
