"""Models whose inputs are prepared otherwise are merged, and it is said which settings are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from fusionlab.commands.other_processors import tell_other_processors
from tests.commands.conftest import Command

IMAGES: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5], "size": {"height": 8, "width": 8},
}  # fmt: skip


def prepared(folder: Path, name: str = "preprocessor_config.json", **settings: Any) -> str:
    """Write a preprocessor beside what lies in a folder; its path."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(IMAGES | settings))
    return str(folder)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_keys_that_differ_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With those around them; not what names code, or is set to nothing."""
    first = prepared(tmp_path / "first")
    other = prepared(tmp_path / "other", image_mean=[0.4, 0.5], size={"height": 16, "width": 8}, do_pad=True)
    rest = [
        prepared(
            tmp_path / "same", image_processor_type="ViTImageProcessorFast", do_pad=None, processor_class="A",
            transformers_version="4.1", auto_map="x", _name="y",
        ),
        str(tmp_path / "missing"),
        str(tmp_path),
    ]  # fmt: skip
    tell_other_processors([first, *rest])
    assert told(capsys) == ""
    tell_other_processors([first, *rest, other])
    assert told(capsys) == (
        f"The preprocessors of {other} and {first} differ (do_pad, image_mean, size.height), so that inputs of one are "
        f"not those of the other; the merge keeps that of {first}."
    )
    tell_other_processors([first, other], is_merged=False)
    assert told(capsys).endswith("; each twin keeps its own.")


def test_a_first_model_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The merge, which is written like the first, has none then."""
    a, b = prepared(tmp_path / "a"), prepared(tmp_path / "b", image_processor_type="CLIPImageProcessor")
    (tmp_path / "none").mkdir()
    tell_other_processors([str(tmp_path / "none"), a, b], ["one", "two", "three"])
    sentence = told(capsys)
    assert sentence.startswith("The preprocessors of three and two differ (image_processor_type),")
    assert sentence.endswith("the merge has none, like one.")


@pytest.mark.parametrize("content", ["[]", "{"])
def test_what_cannot_be_read_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    a, b = prepared(tmp_path / "a"), prepared(tmp_path / "b")
    (tmp_path / "b" / "preprocessor_config.json").write_text(content)
    tell_other_processors([a, b])
    assert told(capsys) == ""


def test_commands_tell_it(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Before they merge or match; the merge has the file that was said to be kept."""
    for name in "ab":
        (tmp_path / name).mkdir()
        for file in (ckpts / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        prepared(tmp_path / name, "processor_config.json", image_mean=[0.1 if name == "a" else 0.2])
    a, b = tmp_path / "a", tmp_path / "b"
    merged, fused = tmp_path / "m", tmp_path / "f"
    for argv, kept in (
        (("merge", a, b, "--output", merged), "the merge keeps that of one"),
        (("match", a, "--anchor", b, "--output", tmp_path / "t"), "each twin keeps its own"),
        (("fuse", "--ckpts", a, b, "--match", "none", "--output", fused), "the merge keeps that of one"),
    ):
        result = command(*argv, "--names", "one", "two")
        assert result.code == 0, result.err
        sentence = " ".join(result.err.split())
        assert "The preprocessors of two and one differ (image_mean)" in sentence, argv
        assert kept in sentence, argv
    own = (a / "processor_config.json").read_bytes()
    assert (merged / "processor_config.json").read_bytes() == own
    assert (fused / "merged" / "processor_config.json").read_bytes() == own
