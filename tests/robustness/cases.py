"""Cases of damaged input, each of which follows from a seed and an index alone."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Judge = Callable[[Path], str]
"""Given the working folder after a command that ended with 0: why it should not have; empty if it rightly did."""
OUTPUT = "out"


@dataclass(frozen=True)
class Case:
    """A command whose input is damaged in one way."""

    argv: list[str]
    judge: Judge | None = None
    """What an exit code of 0 is judged by; None where any input of that kind may rightly be taken."""
    must_refuse: bool = False
    """Whether nothing but a refusal is right."""
    may_write: tuple[str, ...] = ()
    """What the command may write besides its output."""


@dataclass(frozen=True)
class Place:
    """Where a case is laid out: ``work`` is the working folder, ``outside`` beside it what nobody may reach."""

    sound: Path
    folder: Path
    draw: random.Random = field(repr=False)

    @property
    def work(self) -> Path:
        """The working folder."""
        return self.folder / "work"

    @property
    def canary(self) -> Path:
        """What code in a damaged file makes, if it runs."""
        return self.folder / "canary"

    def copy(self, *names: str) -> Path:
        """Copy undamaged inputs into the working folder; returns the first."""
        for name in names:
            source, target = self.sound / name, self.work / name
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
        return self.work / names[0]


Kind = Callable[[Place], Case]
KINDS: dict[str, Kind] = {}


def kind(make: Kind) -> Kind:
    """Register a way to damage an input."""
    KINDS[make.__name__] = make
    return make


def lay_out(seed: int, index: int, sound: Path, folder: Path) -> tuple[str, Case, Place]:
    """Write the files of a case.

    Args:
        seed: of the whole run.
        index: of the case in it, from 0; one after another go through all kinds.
        sound: folder of undamaged inputs.
        folder: empty, to be written.

    Returns:
        The kind of damage, the command, and where it is laid out.
    """
    place = Place(sound, folder, random.Random(f"{seed}/{index}"))
    for name in ("work", "home", "temporary", "outside"):
        (folder / name).mkdir(parents=True)
    shutil.copyfile(sound / "a" / "model.safetensors", folder / "outside" / "model.safetensors")
    name = name_of(seed, index)
    return name, KINDS[name](place), place


def name_of(seed: int, index: int) -> str:
    """The kind of damage of a case."""
    order = random.Random(seed).sample(sorted(KINDS), len(KINDS))
    return order[index % len(order)]


def any_json(draw: random.Random) -> Any:
    """Some value that is wrong nearly everywhere."""
    simple = [
        None, True, False, -1, 0, 1, 3, 2**31, 2**63, 10**30, -(2**63), 0.5, 1e308, float("nan"), float("inf"), "", "x",
        "0", "../../x", "/etc/passwd", "\u0000", "\ud83d\ude00", "a" * 100_000, [], {}, [[]], [None], {"": None},
        {"a": {"b": [1]}}, [1, "a", None], list(range(1000)),
    ]  # fmt: skip
    return draw.choice(simple)


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    """Brackets in brackets."""
    return opening * depth + closing * depth


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the mapping in a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
