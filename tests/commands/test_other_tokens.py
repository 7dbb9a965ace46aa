"""Models whose tokenizers give tokens other numbers are merged, and that is said."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from fusionlab.commands.other_tokens import tell_other_tokens
from tests.commands.conftest import Command

WORDS = {"<unk>": 0, "a": 1, "b": 2}


def tokenizer(folder: Path, core: models.Model, *added: str) -> str:
    """Write a tokenizer into a folder; returns its path."""
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(core), unk_token="<unk>", pad_token="<unk>")
    made.add_tokens(list(added))
    made.save_pretrained(folder)
    return str(folder)


def words(vocabulary: dict[str, int]) -> models.Model:
    return models.WordLevel(vocabulary, unk_token="<unk>")


def test_tokens_with_other_numbers_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of lists as of tables, with what was added; a model without a tokenizer says nothing."""
    first = tokenizer(tmp_path / "first", words(WORDS))
    listed = tokenizer(tmp_path / "listed", models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0), "b")
    turned = tokenizer(tmp_path / "turned", words({"<unk>": 0, "b": 1, "a": 2, "c": 3}))
    (tmp_path / "none").mkdir()
    tell_other_tokens([str(tmp_path / "none"), first, listed, turned, str(tmp_path / "missing")])
    told = capsys.readouterr().err
    assert told.count("tokenizers") == 1
    assert f"The tokenizers of {turned} and {first} give 3 tokens other numbers" in " ".join(told.split())
    assert "fusionlab vocab" in told


@pytest.mark.parametrize("content", ["[]", "{", '{"model": 3}', '{"model": {"vocab": [3]}}'])
def test_what_is_no_tokenizer_is_left_to_others(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (tokenizer(tmp_path / name, words(WORDS)) for name in ("first", "second"))
    (tmp_path / "second" / "tokenizer.json").write_text(content)
    tell_other_tokens([first, second])
    tell_other_tokens([second, first])
    assert capsys.readouterr().err == ""


def test_commands_tell_it(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Before they merge or match."""
    for name in "ab":
        (tmp_path / name).mkdir()
        for file in (ckpts / f"bert_{name}").iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    a, b = tokenizer(tmp_path / "a", words(WORDS)), tokenizer(tmp_path / "b", words({**WORDS, "a": 2, "b": 1}))
    for argv in (
        ("merge", a, b, "--output", str(tmp_path / "m"), "--names", "one", "two"),
        ("match", a, "--anchor", b, "--output", str(tmp_path / "t"), "--names", "one", "two"),
        ("fuse", "--ckpts", a, b, "--match", "none", "--output", str(tmp_path / "f"), "--names", "one", "two"),
    ):
        result = command(*argv)
        assert result.code == 0, result.err
        assert "The tokenizers of two and one give 2 tokens other numbers" in " ".join(result.err.split()), argv
