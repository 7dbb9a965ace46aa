"""The merge of checkpoint folders by what is known beside their numbers, a part of the parameters at a time.

That is the blueprint of their class, and statistics that were gathered before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from fusionlab import signals
from fusionlab.asked import Asked
from fusionlab.batch_norm import running_statistics
from fusionlab.checkpoints.weightless import Weightless
from fusionlab.dtypes import widest
from fusionlab.matching.weights import squared_distance
from fusionlab.merging.ingredients import Ingredients
from fusionlab.statistics import Statistics
from fusionlab.streaming.merge import Streamed
from fusionlab.streaming.recipe import Recipe
from fusionlab.streaming.resuming import Manifest, Tally
from fusionlab.streaming.shards import Writer, like, written
from fusionlab.streaming.stored import StoredModel
from fusionlab.streaming.twins import PartReader, once
from fusionlab.symmetry import Blueprint
from fusionlab.types import State


@dataclass(frozen=True)
class Informed:
    """Knowledge about models that lie on the disk.

    Attributes:
        made: their class without weights.
        statistics: for each model, by kind, those that the method needs; their tensors are mapped from files.
        blueprint: of all; None where the method does not need it.
    """

    made: Weightless
    statistics: Sequence[Mapping[str, Statistics]]
    blueprint: Blueprint | None = None

    @torch.no_grad()
    def merge(
        self,
        models: Sequence[StoredModel],
        recipe: Recipe,
        folder: Path,
        most: int | None = None,
        advance: Callable[[int], object] = lambda _: None,
        manifest: Manifest | None = None,
        prefix: str = "",
    ) -> Streamed:
        """Merge folders into the weight files of another one.

        One part is in memory at a time: a parameter, or those that depend on each other.

        Args:
            models: see `fusionlab.streaming.merge.stream_merge`, like what follows.
            recipe: whose method merges by parts (`MergeMethod.by_parts`).
            folder: empty, or what an earlier call left unfinished.
            most: bytes of a file.
            advance: is told of bytes.
            manifest: of the folder or of one around it.
            prefix: the folder's path in that of the manifest.

        Raises:
            InputError: numbers that are NaN or infinite, or that the type to write in cannot hold; integer buffers that
                differ between the models; or what the method refuses.
        """
        method, planned = recipe.method, recipe.types(models)
        files, complete = like(models[0], planned, most), {} if manifest is None else manifest.finished
        finished = [file for file in files if f"{prefix}{file}" in complete]
        method.check(recipe.weights, recipe.hyperparameters)
        given = Ingredients([], recipe.weights, self.blueprint, self.statistics, None, None, recipe.seed)
        given = method.surveyed(given, [self.made.model.state_dict()] * len(models), **recipe.hyperparameters)
        with ExitStack() as stack:
            readers = [PartReader(stack.enter_context(model.opened()), self.made) for model in models]
            writer = stack.enter_context(written(folder, files, planned, finished))
            tally = stack.enter_context(Tally(files, planned, len(models), manifest, prefix))
            work = _Work(readers, recipe, given, writer, tally, advance)
            if method.flows:
                work.flow(list(_parts(self, ())))
            else:
                assert method.together is not None
                work.by_parts(_parts(self, method.together(given)))
        return Streamed(tuple(map(math.sqrt, tally.totals())), bool(running_statistics(planned)))


@dataclass(frozen=True)
class _Work:
    """One merge while it runs."""

    readers: Sequence[PartReader]
    recipe: Recipe
    given: Ingredients
    writer: Writer
    tally: Tally
    advance: Callable[[int], object]

    def by_parts(self, parts: Iterable[Sequence[str]]) -> None:
        """Merge parts that do not depend on each other; those that are written are left out."""
        method, hyperparameters = self.recipe.method, self.recipe.hyperparameters
        for names in parts:
            signals.check()
            if not self.tally.is_written(self._sizes(names)):
                states = [self._read(reader, names) for reader in self.readers]
                merged = method.merge(replace(self.given, states=states), **hyperparameters)
                self._write(names, merged, states)
                del states, merged
            self.advance(sum(self._sizes(names).values()))

    def flow(self, parts: Sequence[Sequence[str]]) -> None:
        """Merge in the order of the method; what is written together waits for each other."""
        part_of = {name: index for index, names in enumerate(parts) for name in names}
        stored, left = self.readers[0].names, [set(names) for names in parts]
        # By the name that is stored: of what is tied the last one counts, as where a model is given a state.
        waiting: dict[str, tuple[int, Tensor]] = {}
        states = [Asked(list(stored), partial(self._one, reader)) for reader in self.readers]
        given = replace(self.given, states=states)
        for merged in self.recipe.method.parts(given, **self.recipe.hyperparameters):
            signals.check()
            for name, tensor in merged.items():
                place = parts[part_of[name]].index(name)
                if stored[name] not in waiting or waiting[stored[name]][0] < place:
                    waiting[stored[name]] = (place, tensor)
                left[part_of[name]].remove(name)
            del tensor
            for names in [parts[index] for index in dict.fromkeys(map(part_of.__getitem__, merged)) if not left[index]]:
                done = {held: waiting.pop(held)[1] for held in dict.fromkeys(stored[name] for name in names)}
                if not self.tally.is_written(self._sizes(names)):
                    states_of = (self._read(reader, names) for reader in self.readers)
                    self._write(names, {name: done[stored[name]] for name in names}, states_of)
                self.advance(sum(self._sizes(names).values()))
        assert not any(left)

    def _sizes(self, names: Sequence[str]) -> dict[str, int]:
        return self.readers[0].sizes(names, self.writer)

    def _write(self, names: Sequence[str], merged: Mapping[str, Tensor], states: Iterable[State]) -> None:
        """Write a part and count it, with the squared distances of the models to it."""
        first = self.readers[0]
        kept = first.write(merged, self.writer)
        counted = [name for name in once(names, first.names) if kept[name].is_floating_point()]
        self.tally.add(self._sizes(names), [squared_distance(state, kept, counted) for state in states])

    def _read(self, reader: PartReader, names: Sequence[str]) -> dict[str, Tensor]:
        """Some parameters of a model, each in the widest type that any model has it in; what is tied is one tensor."""
        held = {reader.names[name]: tensor for name, tensor in reader.read(names).items()}
        held = {name: tensor.to(self._type(name)) for name, tensor in held.items()}
        return {name: held[reader.names[name]] for name in names}

    def _one(self, reader: PartReader, name: str) -> Tensor:
        return self._read(reader, [name])[name]

    def _type(self, name: str) -> torch.dtype:
        """The type that a parameter is merged in, by its name that is stored."""
        dtype = widest(
            reader.reader.model.tensors[stored].dtype
            for reader in self.readers
            for stored in reader.groups[name].stored
        )
        least = self.recipe.dtype
        return widest([dtype, least]) if least is not None and dtype.is_floating_point else dtype


def _parts(known: Informed, together: Iterable[Sequence[str]]) -> list[list[str]]:
    """All names of the state, each once: in a part are those that are tied, written or merged together.

    Args:
        known: of the models.
        together: names that are merged together.
    """
    names = known.made.names
    place = {name: index for index, name in enumerate(names)}
    joined = [*names.items(), *(group.made for group in known.made.groups.values()), *together]
    pairs = [(place[one[0]], place[other]) for one in joined for other in one[1:] if one[0] in place and other in place]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(pairs)), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(graph, directed=False)
    parts: dict[int, list[str]] = {}
    for name, label in zip(names, labels.tolist(), strict=True):
        parts.setdefault(label, []).append(name)
    return list(parts.values())
