"""Makes the cells of a grid; each is on disk as soon as it is finished."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from traceback import clear_frames
from typing import Any

from lightning.pytorch import Trainer, seed_everything
from torch import nn

from fusionlab import checkpoints
from fusionlab.dtypes import measured_note
from fusionlab.errors import InputError, first_line
from fusionlab.evaluation.comparison import Measured
from fusionlab.evaluation.curves import Curve
from fusionlab.evaluation.rows import END_MODEL, ENSEMBLE, MULTITASK
from fusionlab.experiment import draw_lines
from fusionlab.fusion import Candidate, CandidateTest, Data, Fuser, FusionPlan, HeadStrategy
from fusionlab.fusion.misfit import refuse_misfit
from fusionlab.grid.accepted import Accepted
from fusionlab.grid.cells import CellStore, Finished
from fusionlab.grid.data_sets import TestData
from fusionlab.grid.design import Cell, EndModel, Grid
from fusionlab.grid.fingerprints import digest
from fusionlab.grid.places import Here, Place, Trained
from fusionlab.grid.published import PublishedFuser
from fusionlab.grid.statistics_files import StatisticsFiles
from fusionlab.growing import grown_to_one_size, told
from fusionlab.inputs import Inputs
from fusionlab.matching.workplace import Workplace
from fusionlab.sentences import sentence
from fusionlab.stages import Stages, run
from fusionlab.trainers import device_of, make_trainer, unusual_precision

Train = Callable[[EndModel, int, Path], None]


class GridRunner:
    """Runs a grid in a folder: trains the end models that are missing, makes the cells that are missing.

    Args:
        grid: what to compare.
        folder: ``cells/``, ``end_models/`` and ``statistics/`` are kept in it.
        train: trains one end model with one seed and writes its checkpoint folder.
        trainer: what each Trainer is made with.

    Attributes:
        broken: end models that cannot be had, with the reason; they are not tried again.
        fault: the first error of fusionlab's own that failed a cell; None where there was none.

    Raises:
        InputError: settings that the Trainer refuses, or more than one device.
    """

    def __init__(self, grid: Grid, folder: Path, train: Train, trainer: Mapping[str, Any]) -> None:
        # Refused settings are told before any work. Every process would write every cell and train every end model.
        if (count := make_trainer(trainer, "").num_devices) > 1:
            given = trainer.get("devices")
            raise InputError(f"devices is {given!r} ({count} here), but one process writes a grid; expected 1")
        self.grid, self.folder, self.train, self.trainer = grid, Path(folder), train, dict(trainer)
        self.store = CellStore(self.folder / "cells")
        self.data = TestData(grid)
        self._precision = unusual_precision(trainer.get("precision"))
        self._statistics = StatisticsFiles(self.folder / "statistics", grid, self._precision)
        self.broken: dict[Trained, Exception] = {}
        self._group: tuple[tuple[tuple[str, ...], int], Accepted] | None = None
        self._note = ""
        self.fault: Exception | None = None

    def state(self) -> list[tuple[Cell, Finished | None]]:
        """Every cell, with what it gave if it is finished."""
        return [(cell, self.kept(cell)) for cell in self.grid.cells()]

    def kept(self, cell: Cell) -> Finished | None:
        """A finished cell; one that lacks a test set is not finished, once the set is there."""
        done = self.store.read(cell, self._fingerprint(cell))
        is_whole = done is None or not done.missing or set(done.missing) <= set(self.data.missing(cell))
        return done if is_whole else None

    def run(self, place: Place | None = None) -> Generator[Finished, None, None]:
        """Make the missing cells; a cell that fails is given back with its error and does not stop the others.

        Args:
            place: where they are made; this process if None. Finished cells come first, then those that are made, as
                they are finished there.

        Raises:
            InputError: the place cannot make them.
        """
        state = self.state()
        yield from (finished for _, finished in state if finished is not None)
        missing = [cell for cell, finished in state if finished is None]
        with closing((place or Here()).cells(self, missing)) as made:
            yield from made

    def has(self, name: str, seed: int) -> bool:
        """True if the checkpoint of an end model is on this machine."""
        return self._place(name, seed).exists()

    def make(self, cell: Cell) -> Finished:
        """Make a cell and write it; one that fails has its error."""
        start = time.perf_counter()
        try:
            seed_everything(cell.seed, verbose=False)
            finished = self._measure(cell)
        except Exception as error:
            # One bad cell must not lose the hours that the others take; its sentence is in the table of failures.
            return self._written(self._failed(cell, error), start)
        return self._written(replace(finished, missing=self.data.missing(cell)), start)

    def fail(self, cell: Cell, error: Exception) -> Finished:
        """Write a cell that could not be made at all."""
        return self._written(self._failed(cell, error), time.perf_counter())

    def _failed(self, cell: Cell, error: Exception) -> Finished:
        return Finished(cell, (), error=sentence(error) or self._told(error))

    def _written(self, finished: Finished, start: float) -> Finished:
        finished = replace(finished, seconds=time.perf_counter() - start)
        self.store.write(finished, self._fingerprint(finished.cell))
        # On the disk now; the examples of all cells at once may be more than memory holds.
        return replace(finished, measured=())

    def _told(self, error: Exception) -> str:
        """The sentence on an error of fusionlab's own, of which the first is kept."""
        if self.fault is None:
            self.fault = error
            # The models that its frames hold would stay in memory as long as it does.
            clear_frames(error.__traceback__)
        return f"internal error: {type(error).__name__}: {first_line(error)}"

    def examples(self, cells: Iterable[Cell]) -> list[Measured]:
        """The part of each test example in some cells' scores; none for cells that were made before it was kept."""
        return [one for cell in cells for one in self.store.examples(cell, self._fingerprint(cell))]

    def _fingerprint(self, cell: Cell) -> str:
        """That of the grid, and the precision of the passes where it is another than usual."""
        found = self.grid.fingerprint(cell)
        return found if self._precision is None else digest([found, self._precision])

    def _measure(self, cell: Cell) -> Finished:
        # First, as it costs least: data that are missing fail a cell before any model is trained for it.
        data = self.data.of(cell)
        if cell.method in (END_MODEL, MULTITASK):
            name = MULTITASK if cell.method == MULTITASK else cell.models[0]
            start = time.perf_counter()
            is_new = self._is_untrained(name, cell.seed)
            model = self.load(name, cell.seed)
            seconds = time.perf_counter() - start if is_new else None
            candidate = Candidate(cell.models, cell.method, cell.matching, model, seconds)
            return self._test(cell, [model], candidate, data)
        fusers = self._fusers(cell.models, cell.seed)
        if cell.method == ENSEMBLE:
            fuser = fusers.fuser
            return self._test(cell, fuser.end_models, fuser.ensemble_of_all(), data, fuser.heads)
        fuser = fusers.of(cell.method, cell.matching)
        merged = run(self._merged(fuser, cell), partial(self._trainer, "matching and merging"))
        finished = self._test(cell, fuser.end_models, merged, data, fuser.heads)
        distances = tuple(found for found in fuser.fused.distances if found.matching == cell.matching)
        curves: list[Curve] = []
        if self.grid.draws_lines(cell):
            curves = draw_lines(fuser, cell.matching, data.inside(), self.grid.points, self.trainer)
        told = tuple(merged.notes)
        return replace(finished, curves=tuple(curves), distances=distances, note=self._note, told=told)

    def _merged(self, fuser: Fuser, cell: Cell) -> Stages[Candidate]:
        """A cell's merge; statistics that it needs are kept on the disk."""
        yield from self._statistics.gather(fuser, cell.method)
        return (yield from fuser.merge(cell.method, cell.matching))

    def _test(
        self,
        cell: Cell,
        ends: Sequence[nn.Module],
        candidate: Candidate,
        data: Data,
        heads: HeadStrategy | None = None,
    ) -> Finished:
        """A cell with the scores of one candidate."""
        refuse_misfit(ends, data, heads)
        tested = CandidateTest([candidate], data.sets, heads)
        self._trainer("testing").test(tested, list(data.loaders), verbose=False)
        measured = tuple(replace(one, seed=cell.seed) for one in tested.measured)
        return Finished(cell, tuple(tested.rows), measured=measured)

    def _trainer(self, label: str) -> Trainer:
        return make_trainer(self.trainer, label, leave=False)

    def _fusers(self, group: tuple[str, ...], seed: int) -> Accepted:
        """The fusers of a group; kept until the next group, so that a matching is found once for all methods."""
        if self._group is None or self._group[0] != (group, seed):
            if self._group is not None:
                self._group = None
                # Models and Trainers point to each other: nothing else would free the models of the last group soon.
                gc.collect()
            models = {name: self.load(name, seed) for name in group}
            grid, inputs = self.grid, self._inputs(group, seed)
            matches = any(recipe.matches for recipe in grid.matchings.values())
            growths = grown_to_one_size(models, None if inputs is None else inputs.shared, matches)
            models |= {name: growth.model for name, growth in growths.items()}
            self._note = " ".join(filter(None, [measured_note(models), f"{told(growths)}." if growths else ""]))
            kind = PublishedFuser if grid.protocol == "published" else Fuser
            known, base = self._statistics.read(models, seed), self._base

            def make(plan: FusionPlan) -> Fuser:
                fuser = kind(models, plan, inputs, known, base)
                fuser.matchings.place = Workplace(device_of(str(self.trainer.get("accelerator", "auto"))))
                return fuser

            plan = FusionPlan(grid.matchings, grid.methods, heads=grid.heads, seed=seed)
            self._group = (group, seed), Accepted(make, plan)
        return self._group[1]

    @cached_property
    def _base(self) -> nn.Module | None:
        return None if self.grid.base is None else checkpoints.load(self.grid.base)

    def _inputs(self, group: Sequence[str], seed: int) -> Inputs | None:
        modules = [self.grid.end_models[name].data for name in group]
        return Inputs.of(modules, len(group), self.grid.samples, seed)

    def untrained(self, cell: Cell) -> set[Trained]:
        """The end models that making a cell would train."""
        names = (MULTITASK,) if cell.method == MULTITASK else cell.models
        wanted = {(name, cell.seed) for name in names} - set(self.broken)
        return {(name, seed) for name, seed in wanted if self._is_untrained(name, seed)}

    def _is_untrained(self, name: str, seed: int) -> bool:
        """True if an end model has to be trained first; one that is given never has."""
        return self.end_model(name).fit is not None and not self.has(name, seed)

    def _place(self, name: str, seed: int) -> Path:
        return self.end_model(name).place(name, seed, self.folder / "end_models")

    def load(self, name: str, seed: int) -> nn.Module:
        """An end model, trained if it has to be; what cannot be had is tried once, not in every cell."""
        if (name, seed) in self.broken:
            raise self.broken[name, seed]
        path = self._place(name, seed)
        try:
            if self._is_untrained(name, seed):
                self.train(self.end_model(name), seed, path)
            return checkpoints.load(str(path))
        except InputError as error:
            self.broken[name, seed] = InputError(f"end model {name}, seed {seed}: {error}")
            raise self.broken[name, seed] from error

    def end_model(self, name: str) -> EndModel:
        """An end model by name, or the multi-task model."""
        if name == MULTITASK and self.grid.multitask is not None:
            return self.grid.multitask
        return self.grid.end_models[name]
