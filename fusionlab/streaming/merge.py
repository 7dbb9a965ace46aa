"""The merge of checkpoint folders, a piece of a tensor at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fusionlab.batch_norm import running_statistics
from fusionlab.dtypes import in_type, widest
from fusionlab.errors import InputError
from fusionlab.finite import all_finite, not_finite
from fusionlab.merging.by_parameter import weights_alone
from fusionlab.merging.ingredients import PIECE, Ingredients, working_type
from fusionlab.merging.registry import find_method
from fusionlab.streaming.memory import STRETCH, held
from fusionlab.streaming.pipeline import in_order, workers
from fusionlab.streaming.recipe import Recipe
from fusionlab.streaming.resuming import Manifest, Tally
from fusionlab.streaming.shards import Writer, like, written
from fusionlab.streaming.stacked import StackWriter, stacks_of
from fusionlab.streaming.stored import Reader, StoredModel, TensorSpec
from fusionlab.streaming.ties import second_names


@dataclass(frozen=True)
class Streamed:
    """Facts about a merge that was written.

    Attributes:
        distances: from each model to the merge, over all floating-point numbers, each counted once.
        averaged: whether running statistics of BatchNorm were averaged.
    """

    distances: tuple[float, ...]
    averaged: bool


@dataclass(frozen=True)
class _Stretch:
    """Some numbers of one tensor, which are merged together."""

    name: str
    start: int
    count: int


def stream_merge(
    models: Sequence[StoredModel],
    base: StoredModel | None,
    recipe: Recipe,
    folder: Path,
    most: int | None = None,
    advance: Callable[[int], object] = lambda _: None,
    manifest: Manifest | None = None,
    prefix: str = "",
) -> Streamed:
    """Merge folders into the weight files of another one.

    Args:
        models: that agree in names and shapes (`may_stream`).
        base: that all were fine-tuned from, for methods that need it.
        recipe: how they are merged.
        folder: empty, or what an earlier call left unfinished; gets weights and their index alone.
        most: bytes of a file; as in the first model if None.
        advance: is told how many bytes of the merge have been written since it was called last.
        manifest: of the folder or of one around it, where a later call may go on with it.
        prefix: the folder's path in that of the manifest, with a slash behind.

    Raises:
        InputError: numbers that are NaN or infinite, or that the type to write in cannot hold; integer buffers that
            differ between the models; or what the method refuses.
    """
    planned = recipe.types(models)
    files, known = like(models[0], planned, most), {} if manifest is None else manifest.finished
    finished = [file for file in files if f"{prefix}{file}" in known]
    stacks = stacks_of(models[0]) if recipe.method.unit == "parameter" else None
    if stacks is not None and stacks.groups:
        models = [stacks.of_model(model) for model in models]
        base = None if base is None else stacks.of_model(base)
    merged = recipe.types(models)
    with ExitStack() as stack:
        readers = [stack.enter_context(model.opened()) for model in models]
        of_base = None if base is None else stack.enter_context(base.opened())
        twice = second_names([*readers, *([] if of_base is None else [of_base])])
        recipe.method.check(recipe.weights, recipe.hyperparameters, list(merged), twice)
        in_files = stack.enter_context(written(folder, files, planned, finished))
        writer = in_files if stacks is None or not stacks.groups else StackWriter(in_files, stacks)
        pool = stack.enter_context(workers())
        work = _Work(readers, of_base, recipe, merged, twice, writer, pool)
        return work.run(advance, stack.enter_context(Tally(files, planned, len(models), manifest, prefix)))


class _Work:
    """One merge while it runs."""

    def __init__(
        self,
        readers: Sequence[Reader],
        base: Reader | None,
        recipe: Recipe,
        planned: Mapping[str, TensorSpec],
        twice: Mapping[str, str],
        writer: Writer | StackWriter,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.readers, self.base, self.recipe = readers, base, recipe
        self.planned, self.writer, self.pool = planned, writer, pool
        self.twice = twice
        self.again: dict[str, list[str]] = {}
        for name, first in self.twice.items():
            self.again.setdefault(first, []).append(name)
        self.by_number = recipe.method.unit == "number"
        self.needs_base = "base" in recipe.method.requires(**recipe.hyperparameters)
        running = running_statistics(planned)
        self.averaged = bool(running)
        # A variance is measured, not learned: with a task vector added it may be negative.
        self.measured = set(running) if self.needs_base else set()
        self.surveyed: Any = None
        self.mean = find_method("simple")

    def run(self, advance: Callable[[int], object], tally: Tally) -> Streamed:
        if self.recipe.method.survey is not None:
            method, given = self.recipe.method, self.recipe.hyperparameters
            self.surveyed = method.survey(_Survey(self), **(method.hyperparameters | dict(given)))  # type: ignore[misc]
        for stretch, found in in_order(self.pool, self._merge, self._unwritten(advance, tally), self._held):
            tally.add(sizes := self._sizes(stretch), found)
            advance(sum(sizes.values()))
        return Streamed(tuple(map(math.sqrt, tally.totals())), self.averaged)

    def _unwritten(self, advance: Callable[[int], object], tally: Tally) -> Iterator[_Stretch]:
        """The stretches that are not complete in all their files."""
        for stretch in self._stretches():
            if tally.is_written(sizes := self._sizes(stretch)):
                advance(sum(sizes.values()))
            else:
                yield stretch

    def _sizes(self, stretch: _Stretch) -> dict[str, int]:
        """The bytes of a stretch under each name that it is written under."""
        names = (stretch.name, *self.again.get(stretch.name, ()))
        return {part: size for n in names for part, size in self.writer.sizes(n, stretch.count).items()}

    def _stretches(self) -> Iterator[_Stretch]:
        """All numbers, each once; parameters are cut where the method merges number by number."""
        for name, planned in self.planned.items():
            if name in self.twice:
                continue
            count = planned.count
            step = STRETCH if self.by_number and planned.dtype.is_floating_point else max(count, 1)
            for start in range(0, max(count, 1), step):
                yield _Stretch(name, start, min(step, count - start))

    def _held(self, stretch: _Stretch) -> int:
        """About how many numbers of 4 bytes merging a stretch holds in memory."""
        shape = (stretch.count,) if self.by_number else self.planned[stretch.name].shape
        return held(shape, len(self.readers), self.recipe.method)

    def _merge(self, stretch: _Stretch) -> tuple[_Stretch, list[float]]:
        """Merge and write a stretch; given are the squared distances of the models to it."""
        name, planned = stretch.name, self.planned[stretch.name]
        read = [reader.read(name, stretch.start, stretch.count) for reader in self.readers]
        base = None
        if self.base is not None and self.needs_base:
            base = self.base.read(name, stretch.start, stretch.count)
        merged: list[Tensor] = []
        squares = [0.0] * len(read)
        step = PIECE if self.by_number else max(stretch.count, 1)
        for start in range(0, stretch.count or 1, step):
            end = min(start + step, stretch.count)
            pieces = [tensor[start:end] for tensor in read]
            own = self._merged(name, stretch.start + start, pieces, None if base is None else base[start:end])
            merged.append(in_type(name, own, planned.dtype))
            del own
            if not planned.dtype.is_floating_point:
                continue
            found = _squares(pieces, merged[-1])
            if not all(map(math.isfinite, found)):
                self._refuse_not_finite(name, pieces, None if base is None else base[start:end])
                if not all_finite(merged[-1]):
                    raise InputError(
                        f"the merge: parameter {name} is NaN or infinite, though the models' numbers are finite; "
                        f"expected other hyperparameters, weights, or a wider --dtype"
                    )
                found = _squares([piece.double() for piece in pieces], merged[-1].double())
            squares = [total + square for total, square in zip(squares, found, strict=True)]
        for written_as in (name, *self.again.get(name, ())):
            self.writer.write(written_as, stretch.start, torch.cat(merged) if len(merged) > 1 else merged[0])
        return stretch, squares

    def _merged(self, name: str, start: int, pieces: Sequence[Tensor], base: Tensor | None) -> Tensor:
        """A piece of a parameter, merged in the widest type that any model has it in, or that is written."""
        shape = self.planned[name].shape
        ingredients = self._ingredients(name, start, pieces, base)
        if not self.by_number:
            whole = [{name: state[name].reshape(shape)} for state in ingredients.states]
            of_base = None if base is None else {name: base.reshape(shape)}
            ingredients = self._with(whole, of_base, start)
        if name in self.measured or not pieces[0].is_floating_point():
            return self.mean.merge(ingredients, **weights_alone(self.recipe.hyperparameters))[name].flatten()
        return self.recipe.method.merge(ingredients, **self.recipe.hyperparameters)[name].flatten()

    def _ingredients(self, name: str, start: int, pieces: Sequence[Tensor], base: Tensor | None) -> Ingredients:
        dtype = widest([piece.dtype for piece in pieces])
        if dtype.is_floating_point and self.recipe.dtype is not None:
            dtype = widest([dtype, self.recipe.dtype])
        return self._with([{name: p.to(dtype)} for p in pieces], None if base is None else {name: base}, start)

    def _with(
        self, states: Sequence[Mapping[str, Tensor]], base: Mapping[str, Tensor] | None, start: int
    ) -> Ingredients:
        weights, seed = self.recipe.weights, self.recipe.seed
        return Ingredients(states, weights, None, (), base, None, seed, start, self.surveyed)

    def _refuse_not_finite(self, name: str, pieces: Sequence[Tensor], base: Tensor | None) -> None:
        """Refuse a model with NaN or infinite numbers, where there is one, once the whole parameter was looked at."""
        readers = list(zip([*self.readers, self.base], [*pieces, base], strict=True))
        for reader, piece in readers:
            if reader is None or piece is None or all_finite(piece):
                continue
            stored = reader.model.tensors[name]
            bad = int((~torch.isfinite(reader.read(name, 0, stored.count))).sum())
            raise not_finite(reader.model.source, name, bad, stored.count)

    def total(self, function: Callable[[Ingredients], Tensor]) -> Tensor:
        """The sum of what a function gives for all pieces, see `Survey`."""

        def of_stretch(stretch: _Stretch) -> Tensor | None:
            if stretch.name in self.measured or not self.planned[stretch.name].dtype.is_floating_point:
                return None
            read = [reader.read(stretch.name, stretch.start, stretch.count) for reader in self.readers]
            base = None if self.base is None else self.base.read(stretch.name, stretch.start, stretch.count)
            total = None
            for start in range(0, stretch.count, PIECE):
                end = min(start + PIECE, stretch.count)
                pieces = [tensor[start:end] for tensor in read]
                of_base = None if base is None else base[start:end]
                part = function(self._ingredients(stretch.name, stretch.start + start, pieces, of_base))
                total = part if total is None else total.add_(part)
            return total

        parts = (part for part in in_order(self.pool, of_stretch, self._stretches(), self._held) if part is not None)
        found = next(parts, torch.zeros((), dtype=torch.int64))
        for part in parts:
            found.add_(part)
        return found


class _Survey:
    """A look at all parameters of the models of a merge."""

    def __init__(self, work: _Work) -> None:
        self.work = work

    @property
    def dtype(self) -> torch.dtype:
        """The widest type that any parameter is merged in."""
        dtypes = [planned.dtype for planned in self.work.planned.values() if planned.dtype.is_floating_point]
        dtypes += [stored.dtype for r in self.work.readers for stored in r.model.tensors.values()]
        return widest([torch.float32, *(dtype for dtype in dtypes if dtype.is_floating_point)])

    def total(self, function: Callable[[Ingredients], Tensor]) -> Tensor:
        """The sum of what a function gives for all pieces."""
        return self.work.total(function)


def _squares(pieces: Sequence[Tensor], merged: Tensor) -> list[float]:
    """Squared distances of some tensors to another, each piece of it in float32 or better, and summed in float64."""
    found = [0.0] * len(pieces)
    for start in range(0, len(merged), PIECE):
        part = merged[start : start + PIECE]
        for index, piece in enumerate(pieces):
            dtype = torch.promote_types(working_type(piece), working_type(part))
            difference = piece[start : start + PIECE].to(dtype) - part.to(dtype)
            found[index] += float(torch.dot(difference, difference))
    return found
