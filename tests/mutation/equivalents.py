"""Mutants that no test can tell from the source, each with the reason."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant


@dataclass(frozen=True)
class Equivalent:
    """One entry of ``equivalent.toml``: the lines as they were and as they are, without indentation, and why."""

    file: str
    function: str
    was: str
    now: str
    reason: str

    def matches(self, mutant: Mutant) -> bool:
        """The same change at the same place."""
        return (self.file, self.function) == (mutant.file, mutant.function) and (self.was, self.now) == mutant.change


def read_equivalents(path: Path) -> list[Equivalent]:
    """The entries of the file."""
    return [Equivalent(**entry) for entry in tomllib.loads(path.read_text()).get("mutant", [])]
