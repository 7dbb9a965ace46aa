"""A merge has a card of its own: what it was made of, how, and which licences that comes with."""

import hashlib
from pathlib import Path

import pytest
import yaml

from fusionlab.checkpoints.card import Parent, merge_card, parent, twin_card
from tests.commands.conftest import Command, ckpts, command  # noqa: F401


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("---\nlicense: mit\n---\nlicense: apache-2.0\n", "mit"),
        ('---\ntags:\n- x\nlicense: "cc-by-4.0"\n---\n', "cc-by-4.0"),
        ("---\nlicense:\n- mit\n- gpl-3.0\nlanguage: en\n---\n", "mit, gpl-3.0"),
        ("---\nlicense: [mit, gpl-3.0]\n---\n", "mit, gpl-3.0"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("---\nlicense:\nlanguage: en\n---\n", None),
        ("---\nlicense_name: x\n---\n", None),
        ("license: mit\n", None),
        ("---\nlicense: mit\n", None),
        ("", None),
        ("\xff---", None),
        ("---\nlicense: " + "x" * 1000 + "\n---\n", "x" * 200),
    ],
)
def test_licences_are_read_from_the_head_of_a_card(tmp_path: Path, text: str, licence: str | None) -> None:
    """And nothing else of it is."""
    (tmp_path / "README.md").write_bytes(text.encode("latin-1"))
    assert parent("a", tmp_path) == Parent("a", licence)


def test_a_model_without_a_card(tmp_path: Path) -> None:
    """A Lightning file has none either."""
    assert parent("a", tmp_path) == parent("a", tmp_path / "x.ckpt") == Parent("a", None)


def test_a_card_is_yaml_and_a_table_whatever_the_names_are() -> None:
    """No name breaks out of its cell, and no licence is claimed."""
    text = merge_card([Parent("a|b`\n# c", "mit|x\n"), Parent("d", None)], {"how": "x | y"}, "timm")
    head, body = text.split("---\n")[1:]
    assert yaml.safe_load(head) == {"library_name": "timm", "tags": ["merge", "fusionlab"]}
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert all(line.count("|") == 3 for line in rows)
    assert "| how | x / y |" in rows
    assert "| `a/b # c` | mit/x |" in rows
    assert "| `d` | none given in its card |" in rows
    assert "whoever publishes this model has to choose one" in body
    agreed = merge_card([Parent("a", "mit"), Parent("d", "mit")], {}, "timm")
    assert yaml.safe_load(agreed.split("---\n")[1])["license"] == "mit"
    assert "No licence is chosen" not in agreed
    for licences in (("mit", "apache-2.0"), ("mit, gpl-3.0",) * 2, ("other",) * 2, ("mit", None), (None, None)):
        text = merge_card([Parent("a", licences[0]), Parent("d", licences[1])], {}, "timm")
        assert "license" not in yaml.safe_load(text.split("---\n")[1])
    twin = twin_card(Parent("a", "mit"), "b", {}, "transformers")
    assert "computes what `a` computes" in twin
    assert "the basis of `b`" in twin


def test_cards_of_commands(ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The first model's card is not copied; method, hyperparameters, matching and parents are told, and no path is."""
    for name in ("bert_a", "bert_b"):
        (tmp_path / name).mkdir()
        for file in (ckpts / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "bert_a" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\nThe best model ever.\n")
    monkeypatch.chdir(tmp_path)
    pair = ("bert_a", "bert_b")
    assert command("merge", *pair, "--output", "merged", "--method", "slerp", "--hyperparameters.t", 0.3).code == 0
    card = Path("merged/README.md").read_text()
    for words in ("| merge method | slerp |", "| hyperparameters | t 0.3 |", "| matching | none |", "cc-by-nc-4.0"):
        assert words in card
    assert command("fuse", "--ckpts", *pair, "--output", "fused", "--match", "weights").code == 0
    card = Path("fused/merged/README.md").read_text()
    assert "# Merge of bert_a and bert_b" in card
    assert "| matching | weights (" in card
    assert "| `bert_a` | cc-by-nc-4.0 |" in card
    assert command("match", "bert_a", "--anchor", "bert_b", "--output", "twin").code == 0
    card = Path("twin/README.md").read_text()
    assert "# Twin of bert_a" in card
    assert "the basis of `bert_b`" in card
    for path in ("merged", "fused/merged", "twin"):
        text = Path(path, "README.md").read_text()
        assert "best model ever" not in text
        assert str(tmp_path) not in text
        assert ("license: cc-by-nc-4.0" in text) == (path == "twin")
        told = {line.split(": sha256 ")[0]: line.split(": sha256 ")[1].strip("`") for line in _hashes(text)}
        for line, digest in told.items():
            assert digest == hashlib.sha256(Path(line.strip("- `")).read_bytes()).hexdigest()
        assert len(told) == (1 if path == "twin" else 2)
    assert _hashes(Path("merged/fusionlab.yaml").read_text()) == [
        f"# {line.strip('- `')}" for line in _hashes(Path("merged/README.md").read_text())
    ]


def _hashes(text: str) -> list[str]:
    return [line for line in text.splitlines() if ": sha256 " in line]
