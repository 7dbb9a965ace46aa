"""The rate at which files of models are read here, measured on themselves."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fusionlab.printing import size_words

# Bytes that are read at once, and seconds after which no further piece is.
PIECE, SECONDS = 2**24, 1.0


@dataclass(frozen=True)
class ReadRate:
    """A measured rate.

    Attributes:
        read: bytes that were read.
        seconds: that took.
        whole: bytes of all files, each as often as it is read.
    """

    read: int
    seconds: float
    whole: int

    @property
    def expected(self) -> float | None:
        """The seconds that reading all files takes at this rate; None where nothing was read."""
        return self.whole * self.seconds / self.read if self.read else None

    def __str__(self) -> str:
        """The rate and what follows from it, in words."""
        if self.expected is None:
            return "There is nothing to read."
        rate = size_words(round(self.read / max(self.seconds, 1e-9)))
        return (
            f"The files were read at {rate} a second just now (faster where the system still holds them), so a merge, "
            f"which reads {size_words(self.whole)}, takes {self.expected:.1f} s or more."
        )


def read_rate(files: Iterable[Path], clock: Callable[[], float] = time.perf_counter) -> ReadRate:
    """The rate at which some files are read, from pieces spread over all of them, for a second or so.

    Args:
        files: that exist; one that is read several times, as the base model of several adapters, so often.
        clock: gives seconds.
    """
    times = Counter(files)
    sizes = {file: file.stat().st_size for file in times}
    places = [(file, start) for file, size in sizes.items() for start in range(0, size, PIECE)]
    read, start = 0, clock()
    for file, offset in _spread(places):
        with file.open("rb", buffering=0) as opened:
            opened.seek(offset)
            read += len(os.read(opened.fileno(), PIECE))
        if clock() - start >= SECONDS:
            break
    return ReadRate(read, clock() - start, sum(size * times[file] for file, size in sizes.items()))


def _spread(places: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
    """The places in an order whose beginnings lie evenly among them: by the bits of their number, turned round."""
    bits = max(1, (len(places) - 1).bit_length())
    numbered = sorted(enumerate(places), key=lambda one: int(f"{one[0]:0{bits}b}"[::-1], 2))
    return [place for _, place in numbered]
