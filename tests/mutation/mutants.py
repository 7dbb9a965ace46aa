"""All mutants of the source, and a sample of them that stays the same where the source does."""

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.operators import OPERATORS

FOLDERS = (
    *("symmetry", "matching", "merging", "statistics", "evaluation", "checkpoints"),
    *("stages", "learning", "fusion"),
)
# How figures look: colours, sizes, margins. Eyes judge them.
LOOKS = ("fusionlab/evaluation/drawing.py",)
# Guards against mistakes of programmers, which a program without them has not got: zip(strict=), dataclass(frozen=).
GUARDS = ("strict", "frozen")


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: path from the checkout's root.
        function: qualified name of the function around the change, or "" at the level of the module.
        start: line and column where the change begins (lines from 1).
        end: where it ends.
        operator: its name in `OPERATORS`.
        occurrence: which of the operator's places in the file it is.
        place: names the place by its text: (function, line, column, count among equal lines); survives edits elsewhere.
    """

    file: str
    function: str
    start: tuple[int, int]
    end: tuple[int, int]
    operator: str
    occurrence: int
    place: str
    source: str

    @cached_property
    def mutated(self) -> str | None:
        """The file's text with the change, or None where that is no Python or no change."""
        text = mutate_code(self.source, OPERATORS[self.operator], self.occurrence)
        if text is None or text == self.source:
            return None
        try:
            compile(text, self.file, "exec")
        except SyntaxError:
            return None
        return str(text)

    @cached_property
    def change(self) -> tuple[str, str]:
        """The lines as they were and as they are, without indentation."""
        was, now = [], []
        for line in difflib.unified_diff(self.source.splitlines(), (self.mutated or "").splitlines(), lineterm="", n=0):
            if line.startswith("-") and not line.startswith("---"):
                was.append(line[1:].strip())
            elif line.startswith("+") and not line.startswith("+++"):
                now.append(line[1:].strip())
        return "\n".join(was), "\n".join(now)

    def diff(self) -> str:
        """A unified diff with one line of context."""
        lines = difflib.unified_diff(self.source.splitlines(), (self.mutated or "").splitlines(), lineterm="", n=1)
        return "\n".join(list(lines)[2:])


def sample(root: Path, count: int, seed: int, only: str = "") -> list[Mutant]:
    """Mutants at ``count`` places drawn with equal chances, one mutant for each.

    Places are ordered by a digest of their text, so that an edit changes the sample only where it is.

    Args:
        root: the checkout.
        count: how many.
        seed: another seed, another sample.
        only: prefixes of paths below ``fusionlab/``, between spaces, such as ``merging stages/module.py``.
    """
    by_place: dict[str, list[Mutant]] = {}
    for path in source_files(root, only):
        for mutant in mutants_of(path, root):
            by_place.setdefault(mutant.place, []).append(mutant)
    chosen = []
    for place in sorted(by_place, key=lambda place: _digest(seed, place)):
        at_place = sorted(by_place[place], key=lambda mutant: _digest(seed, f"{place}{mutant.operator}"))
        valid = next((mutant for mutant in at_place if mutant.mutated is not None), None)
        if valid is not None:
            chosen.append(valid)
        if len(chosen) == count:
            break
    return chosen


def source_files(root: Path, only: str = "") -> list[Path]:
    """The files that mutants are made of."""
    package = root / "fusionlab"
    files = [path for folder in FOLDERS for path in sorted((package / folder).rglob("*.py"))]
    files = [path for path in files if path.relative_to(root).as_posix() not in LOOKS]
    return [path for path in files if path.relative_to(package).as_posix().startswith(tuple(only.split()) or "")]


def mutants_of(path: Path, root: Path) -> Iterator[Mutant]:
    """Every place of a file and every operator that can change it, but for type annotations and guards."""
    source = path.read_text()
    file = path.relative_to(root).as_posix()
    occurrences: Counter[str] = Counter()
    lines: Counter[tuple[str, str]] = Counter()
    first_seen: dict[int, int] = {}
    for node in ast_nodes(get_ast(source)):
        for name, operator in OPERATORS.items():
            for start, end in operator.mutation_positions(node):
                occurrence = occurrences[name]
                occurrences[name] += 1
                if _in_annotation(node) or _is_guard(source, start):
                    continue
                function = _function(node)
                line = source.splitlines()[start[0] - 1]
                if start[0] not in first_seen:
                    first_seen[start[0]] = lines[function, line.strip()]
                    lines[function, line.strip()] += 1
                column = start[1] - (len(line) - len(line.lstrip()))
                place = f"{file}::{function}::{line.strip()}::{first_seen[start[0]]}::{column}:{_length(start, end)}"
                yield Mutant(file, function, start, end, name, occurrence, place, source)


def _length(start: tuple[int, int], end: tuple[int, int]) -> str:
    return f"{end[0] - start[0]}.{end[1] - start[1] if end[0] == start[0] else end[1]}"


def _in_annotation(node: Any) -> bool:
    """Part of a type or of a type variable: never looked at by what is tested."""
    child = node
    while (parent := child.parent) is not None:
        if parent.type in ("annassign", "tfpdef") and child is parent.children[1 if parent.type == "annassign" else 2]:
            return True
        if parent.type == "funcdef" and parent.children[3] == "->" and child is parent.children[4]:
            return True
        if parent.type == "atom_expr" and parent.children[0].get_code(include_prefix=False) == "TypeVar":
            return True
        child = parent
    return False


def _is_guard(source: str, start: tuple[int, int]) -> bool:
    """``strict=True`` and the like, whether its value would change or it would be left out."""
    line = source.splitlines()[start[0] - 1]
    names = tuple(f"{name}=" for name in GUARDS)
    return line[start[1] :].startswith(names) or line[: start[1]].endswith(names)


def _function(node: Any) -> str:
    """The dotted name of the functions and classes around a node."""
    names = []
    while node is not None:
        if node.type in ("funcdef", "classdef"):
            names.append(node.name.value)
        node = node.parent
    return ".".join(reversed(names))


def _digest(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed}\0{text}".encode()).hexdigest()
