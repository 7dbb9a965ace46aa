"""Notes on end models that differ, as a config of Lightning's shape gets them too."""

import json
from pathlib import Path

import pytest

from fusionlab.commands.differences import tell_differences
from tests.commands.conftest import Command
from tests.commands.test_fuse_config import config
from tests.commands.test_other_tokens import WORDS, tokenizer, words


def model(folder: Path, swapped: bool, labels: list[str]) -> str:
    """The files beside a model's parameters."""
    folder.mkdir()
    tokenizer(folder, words({**WORDS, "a": 2, "b": 1} if swapped else WORDS))
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_resize": swapped}))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": dict(enumerate(labels))}))
    return str(folder)


@pytest.mark.parametrize(
    ("is_merged", "shares_heads", "count"), [(True, True, 3), (True, False, 2), (False, True, 2), (False, False, 2)]
)
def test_all_three_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_merged: bool, shares_heads: bool, count: int
) -> None:
    """Labels of one head alone, which heads that are kept are not."""
    sources = [model(tmp_path / "a", False, ["x", "y"]), model(tmp_path / "b", True, ["x", "z"])]
    tell_differences(sources, ["one", "two"], is_merged, shares_heads)
    told = " ".join(capsys.readouterr().err.split())
    named = ("The tokenizers of two and one", "The preprocessors of two and one", "The labels of two (x, z) and one")
    assert [sentence in told for sentence in named] == [place < count for place in range(3)]


def test_a_config_of_lightnings_shape_tells_it(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Before it fits, in the words of the options of the command."""
    for name, resized in (("a", False), ("b", True)):
        (tmp_path / name).mkdir()
        for file in (ckpts / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        (tmp_path / name / "preprocessor_config.json").write_text(json.dumps({"do_resize": resized}))
    models = {name: str(tmp_path / name) for name in "ab"}
    quick = {"models": models, "match": "none", "methods": "simple", "polish": None, "ensemble": False}
    result = command("fuse", "--config", config(ckpts, tmp_path, model=quick))
    assert result.code == 0, result.err
    told = " ".join(result.err.split())
    assert told.count("The preprocessors of b and a differ (do_resize)") == 1
    assert "the merge keeps that of a" in told
