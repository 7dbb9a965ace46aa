"""Docstrings open with the thing that is returned or done."""

import ast
from pathlib import Path

import fusionlab

PACKAGE = Path(fusionlab.__file__).parent
QUESTIONS = ("What", "Whether", "Where", "How", "Which", "Who", "Whose", "When", "Why", "Whatever")


def opening_with_a_question(tree: ast.Module) -> list[str]:
    """The docstrings of a file and of public things in it that open with a question word."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    public = [node for node in ast.walk(tree) if isinstance(node, kinds) and not node.name.startswith("_")]
    told = [ast.get_docstring(node) or "" for node in (tree, *public)]
    return [words.partition("\n")[0] for words in told if words.partition(" ")[0].rstrip(",:") in QUESTIONS]


def test_docstrings_name_the_thing() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if opened := opening_with_a_question(ast.parse(path.read_text(encoding="utf-8"))):
            found[path.relative_to(PACKAGE).as_posix()] = opened
    assert found == {}


def test_a_question_would_be_found() -> None:
    text = (
        '"""The file."""\ndef one():\n    """Whether it is one."""\nclass Two:\n    """Two, where there are any."""\n'
    )
    text += 'def _three():\n    """How it is three."""\n'
    assert opening_with_a_question(ast.parse(text)) == ["Whether it is one."]
