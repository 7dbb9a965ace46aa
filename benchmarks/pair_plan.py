"""How a page about pairs follows the protocol: settings are chosen on tuning pairs, tables are of test pairs."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from cells import Cells
from torch import nn
from ways import DISTILLED, MEAN, Given, Way, equal_steps, what

# Seeds of source and anchor.
Seeds = tuple[int, int]
# What a pair's cells share; and the keys of the cells of what was chosen.
Cell = Mapping[str, Any]
CHOSEN, EQUAL_TIME = "chosen", "equal time"


def cell_name(split: str, pair: Seeds, what: str) -> str:
    """A cell's name in the file."""
    return f"{split} {pair[0]}-{pair[1]} {what}"


@dataclass(frozen=True)
class Job:
    """A cell that is to be measured.

    Attributes:
        split: of the pair.
        pair: seeds of it.
        way: to one model.
        given: its settings.
        seed: of learning, for ways that learn.
        steps: of a distillation that takes as long as learned matching; as many as that takes if None.
    """

    split: str
    pair: Seeds
    way: Way
    given: Given
    seed: int | None
    steps: int | None = None

    @property
    def name(self) -> str:
        """The name of the cell."""
        return cell_name(self.split, self.pair, what(self.way, self.given, self.seed, steps=self.steps))


class PairCells(ABC):
    """Two models, and cells about them.

    Args:
        split: ``tuning``, or ``test``.
        seeds: of both; the second is the anchor.
        cells: where what is measured is kept.
        told: what of a cell is told while it is measured.
    """

    def __init__(self, split: str, seeds: Seeds, cells: Cells, told: str) -> None:
        self.split, self.seeds, self.cells, self.told = split, seeds, cells, told

    @cached_property
    def ends(self) -> list[nn.Module]:
        """Both models, trained where they are not in the folder."""
        return [self.end(place, seed).eval() for place, seed in enumerate(self.seeds)]

    @abstractmethod
    def end(self, place: int, seed: int) -> nn.Module:
        """One model, trained where it is not in the folder.

        Args:
            place: 0 for the source, 1 for the anchor.
            seed: of it.
        """

    @abstractmethod
    def reached(self) -> dict[str, list[Any]]:
        """What both models and their ensemble reach, the first under ``ends``."""

    @abstractmethod
    def made(self, job: Job) -> dict[str, Any]:
        """What a way reaches, with the ``seconds`` that it took."""

    def begin(self) -> None:
        """Measure what both models and their ensemble reach.

        Where they were measured with other models of the same seeds, as another processor trains them, all other cells
        of the pair are dropped, to be measured with these.
        """
        self.cells.begin(cell_name(self.split, self.seeds, ""), self.reached())

    def measure(self, job: Job) -> bool:
        """Measure a cell that is missing; false where it is there."""
        if job.name in self.cells.found:
            return False
        self.cells.keep(job.name, self.made(job))
        print(job.name, self.cells.found[job.name][self.told], file=sys.stderr, flush=True)
        return True


@dataclass(frozen=True)
class PairPlan:
    """Which pairs, ways and seeds of learning a page is about, and which settings are the best.

    Attributes:
        tuning: pairs that settings are chosen on.
        test: those of the tables.
        ways: to one model, all of them.
        seeds: of learning; the first one alone on tuning pairs.
        steps: of whatever learns.
        score: of a cell, the more the better.
    """

    tuning: Sequence[Seeds]
    test: Sequence[Seeds]
    ways: Sequence[Way]
    seeds: Sequence[int]
    steps: int
    score: Callable[[Cell], float]

    @property
    def rivals(self) -> list[Way]:
        """The distillations, which are measured at equal time too."""
        return [way for way in self.ways if way.then == DISTILLED]

    def learned(self, seen: str) -> Way:
        """Learned matching by what it sees."""
        return next(way for way in self.ways if way.preset == "learned" and way.then == MEAN and way.seen == seen)

    def tried(self, found: Cell, way: Way, given: Given) -> list[Cell]:
        """The cells of some settings of a way, of each tuning pair that is measured."""
        return [found[job.name] for job in self._trials(way, given) if job.name in found]

    def best(self, found: Cell, way: Way) -> Given:
        """The settings of a way with the highest mean score over the tuning pairs, the first of equals."""
        return max(way.grid, key=lambda given: fmean(map(self.score, self.tried(found, way, given))))

    def equal_time(self, found: Cell, way: Way) -> int:
        """How many steps of a distillation take a processor as long as learned matching does, on the tuning pairs."""
        ours, theirs = (
            fmean(cell["seconds"] for cell in self.tried(found, one, found[CHOSEN][one.key]))
            for one in (self.learned(way.seen), way)
        )
        return equal_steps(self.steps, ours, theirs)

    def jobs(self, found: Cell) -> Iterator[Job]:
        """All cells of the test pairs once settings are chosen, those of the first seed first."""
        for seed in self.seeds:
            for pair in self.test:
                for way in self.ways:
                    if way.learns or seed == self.seeds[0]:
                        yield Job("test", pair, way, found[CHOSEN][way.key], seed if way.learns else None)
            for pair in self.test:
                for way in self.rivals:
                    yield Job("test", pair, way, found[CHOSEN][way.key], seed, found[EQUAL_TIME][way.key])

    def missing(self, found: Cell) -> int | None:
        """How many cells of the test pairs are not measured yet; None before settings are chosen."""
        return sum(job.name not in found for job in self.jobs(found)) if EQUAL_TIME in found else None

    def measure(
        self, cells: Cells, pair_of: Callable[[str, Seeds], PairCells], count: int | None = None,
        only: Sequence[Seeds] = (), seeds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Measure what is missing.

        Args:
            cells: where what is measured is kept.
            pair_of: makes a pair of a split and seeds.
            count: of cells at most; all if None.
            only: these test pairs; all if empty.
            seeds: of learning on them; all if empty.
        """
        left = count if count is not None else sys.maxsize
        tuning = [job for way in self.ways for given in way.grid for job in self._trials(way, given)]
        left -= _measured(cells, tuning, pair_of, left)
        if not left:
            return
        chosen = {way.key: self.best(cells.found, way) for way in self.ways}
        if chosen != cells.found.get(CHOSEN) or EQUAL_TIME not in cells.found:
            cells.keep(CHOSEN, chosen)
            cells.keep(EQUAL_TIME, {way.key: self.equal_time(cells.found, way) for way in self.rivals})
        test = [job for job in self.jobs(cells.found) if not only or job.pair in only]
        _measured(cells, [job for job in test if not seeds or job.seed in (None, *seeds)], pair_of, left)

    def _trials(self, way: Way, given: Given) -> list[Job]:
        """Some settings of a way on each tuning pair."""
        return [Job("tuning", pair, way, given, self.seeds[0] if way.learns else None) for pair in self.tuning]


def _measured(cells: Cells, jobs: Sequence[Job], pair_of: Callable[[str, Seeds], PairCells], most: int) -> int:
    """Measure cells that are missing, at most so many, and return how many those were."""
    missing = dict.fromkeys((job.split, job.pair) for job in jobs if job.name not in cells.found)
    models = {one: pair_of(*one) for one in missing}
    for pair in models.values():
        pair.begin()
    measured = 0
    for job in jobs:
        if (job.split, job.pair) in models and measured < most:
            measured += models[job.split, job.pair].measure(job)
    return measured
