"""Files beside weights: an adapter's own, and those of its base model where it has none."""

from pathlib import Path

import pytest

from fusionlab.checkpoints.side_files import copy_side_files

BASE = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "config.json"}


@pytest.mark.parametrize(
    ("own", "taken"),
    [
        (set(), set()),
        ({"chat_template.jinja", "config.json", "adapter_config.json"}, {"chat_template.jinja"}),
        ({"tokenizer_config.json"}, {"tokenizer_config.json"}),
        ({"tokenizer.json"}, {"tokenizer.json"}),
        ({"spiece.model", "tokenizer_config.json"}, {"spiece.model", "tokenizer_config.json"}),
    ],
)
def test_a_tokenizer_is_all_of_its_files(tmp_path: Path, own: set[str], taken: set[str]) -> None:
    """Of two folders those of one, as soon as it has tokens; else its files replace those of the same names."""
    for folder, names in (("base", BASE), ("adapter", own), ("out", set[str]())):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text(folder)
    copy_side_files(tmp_path / "base", tmp_path / "out", adapter=tmp_path / "adapter")
    has_tokens = bool(own & {"tokenizer.json", "spiece.model"})
    expected = dict.fromkeys({"config.json"} if has_tokens else BASE, "base") | dict.fromkeys(taken, "adapter")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == expected


@pytest.mark.parametrize("own", [False, True])
def test_all_chat_templates_come_along(tmp_path: Path, own: bool) -> None:
    """Those beside the first lie in a folder, and belong to the tokenizer: an adapter's own come without the base's."""
    for name in ("source", "adapter"):
        (tmp_path / name / "additional_chat_templates").mkdir(parents=True)
    (tmp_path / "source" / "chat_template.jinja").write_text("first")
    (tmp_path / "source" / "additional_chat_templates" / "tools.jinja").write_text("tools")
    if own:
        (tmp_path / "adapter" / "tokenizer.json").write_text("{}")
        (tmp_path / "adapter" / "additional_chat_templates" / "other.jinja").write_text("other")
    (tmp_path / "output").mkdir()
    copy_side_files(tmp_path / "source", tmp_path / "output", adapter=tmp_path / "adapter")
    found = {path.name: path.read_text() for path in (tmp_path / "output").rglob("*.jinja")}
    assert found == ({"other.jinja": "other"} if own else {"chat_template.jinja": "first", "tools.jinja": "tools"})
