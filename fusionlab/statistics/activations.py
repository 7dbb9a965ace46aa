"""A sample of what linear maps read and write, at the same rows for every model that is given the same data."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.statistics.accumulator import Common, Watcher, accumulator, with_settings
from fusionlab.statistics.layout import fingerprints
from fusionlab.statistics.linear_maps import LinearMaps
from fusionlab.statistics.seen import Seen
from fusionlab.statistics.statistics import Activations
from fusionlab.types import Batch


@accumulator
class ActivationAccumulator(Watcher):
    """Keeps the rows of least priority, a random number for each row that depends on the data and the seed alone.

    So the sample is uniform, and the same whatever the order, the batch size, the padding, the number of processes and
    the model. A row's priority comes from what its example is made of and from its place among the example's rows that
    count.

    Args:
        samples: how many rows to keep of each linear map, at least 1.
        seed: of the draw.
        weights: names of the weights to keep samples of; all if None.
        gradients: whether gradients by what the maps write are kept too.
        numbers: the most that are kept of a model, in all: where its maps are many or wide, fewer rows are, but never
            under one. None for no bound.

    Raises:
        InputError: fewer than one sample.
    """

    kind: ClassVar[str] = Activations.kind

    def __init__(
        self,
        samples: int = 4096,
        seed: int = 0,
        weights: Collection[str] | None = None,
        gradients: bool = False,
        numbers: int | None = None,
    ) -> None:
        if samples < 1:
            raise InputError(f"samples is {samples}; expected at least 1")
        self.limit, self.seed, self.chosen, self.differentiates = samples, seed, weights, gradients
        self.numbers = numbers
        self._maps = LinearMaps({}, {})
        self._inputs: dict[str, RowSample] = {}
        self._outputs: dict[str, RowSample] = {}
        self._gradients: dict[str, RowSample] = {}
        self._batch: RowPriorities | None = None

    def start(self, maps: LinearMaps) -> None:
        """Allocate an empty sample for each map.

        Raises:
            InputError: a chosen weight that is no linear map's, or one that reads no data.
        """
        self._maps = maps
        known = maps.described()
        if unknown := [name for name in self.chosen or () if name not in known]:
            raise InputError(f"{unknown[0]!r} is no weight of a linear map that reads data; expected names of those")
        chosen = [w for w in maps.watched() if self.chosen is None or set(w.names) & set(self.chosen)]
        parameters: list[Tensor] = [weight.modules[0].weight for weight in chosen]  # type: ignore[misc]
        widths = [x.shape[0 if weight.dim else 1] for weight, x in zip(chosen, parameters, strict=True)]
        if self.numbers is not None and chosen:
            read = {maps.inputs[weight.name]: weight.features for weight in chosen}
            of_a_row = sum(read.values()) + sum(widths) * (2 if self.differentiates else 1)
            self.limit = max(1, min(self.limit, self.numbers // of_a_row))
        for weight, parameter, width in zip(chosen, parameters, widths, strict=True):
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            self._inputs.setdefault(maps.inputs[weight.name], RowSample(self.limit, weight.features, dtype))
            self._outputs[weight.name] = RowSample(self.limit, width, dtype)
            if self.differentiates:
                self._gradients[weight.name] = RowSample(self.limit, width, dtype)

    def begin(self, batch: Batch) -> None:
        self._batch = RowPriorities(fingerprints(batch), self.seed)

    def see(self, seen: Seen) -> None:
        assert self._batch is not None
        if seen.weight.name not in self._outputs and not (seen.is_first and seen.source in self._inputs):
            return
        rows, priorities = self._batch.priorities(seen)
        if seen.is_first:
            self._inputs[seen.source].add(seen.inputs, rows, priorities)
        if seen.weight.name in self._outputs:
            self._outputs[seen.weight.name].add(seen.outputs, rows, priorities)

    def see_gradient(self, seen: Seen, gradient: Tensor) -> None:
        assert self._batch is not None
        if seen.weight.name in self._gradients:
            self._gradients[seen.weight.name].add(gradient, *self._batch.priorities(seen))

    def sums(self) -> dict[str, Tensor]:
        return {}

    def samples(self) -> dict[str, Tensor]:
        found = {}
        parts = {"inputs": self._inputs, "outputs": self._outputs, "gradients": self._gradients}
        for part, samples in parts.items():
            for name, sample in samples.items():
                found[f"{part}/{name}/rows"], found[f"{part}/{name}/priorities"] = sample.kept()
        return found

    def finish(self, totals: Mapping[str, Tensor], common: Common) -> Activations:
        def joined(part: str, name: str) -> tuple[Tensor, Tensor]:
            rows = totals[f"{part}/{name}/rows"]
            sample = RowSample(self.limit, rows.shape[1], rows.dtype)
            sample.add(rows, torch.arange(len(rows)), totals[f"{part}/{name}/priorities"])
            return sample.kept()

        digest = hashlib.blake2b(digest_size=16)
        read, written = {}, {}
        for name in self._inputs:
            # Maps that read one tensor share their sample of it.
            rows, priorities = joined("inputs", name)
            read[name] = rows.T.contiguous()
            digest.update(priorities.numpy().tobytes())
        for name in self._outputs:
            written[name] = joined("outputs", name)[0].T.contiguous()
        differentiated = {name: joined("gradients", name)[0].T.contiguous() for name in self._gradients}
        chosen = [weight for weight in self._maps.watched() if weight.name in self._outputs]
        names = {name: weight.name for weight in chosen for name in weight.names}
        told = with_settings(common, samples=str(self.limit), seed=str(self.seed), **self._maps.omissions())
        return Activations(
            **told,
            inputs={name: read[self._maps.inputs[first]] for name, first in names.items()},
            outputs={name: written[first] for name, first in names.items()},
            gradients={name: differentiated[first] for name, first in names.items() if first in differentiated},
            maps={name: map_ for name, map_ in self._maps.described().items() if name in names},
            drawn=digest.hexdigest(),
        )


class RowSample:
    """The rows of least priority so far, on the CPU.

    Args:
        limit: how many to keep.
        features: length of a row.
        dtype: to keep them in.
    """

    def __init__(self, limit: int, features: int, dtype: torch.dtype) -> None:
        self._limit = limit
        self._priorities = [torch.empty(0, dtype=torch.float64)]
        self._rows = [torch.empty(0, features, dtype=dtype)]
        self._bound = float("inf")

    def add(self, rows: Tensor, index: Tensor, priorities: Tensor) -> None:
        """Add rows ``rows[index]`` of these priorities, as far as they are low enough."""
        low = priorities < self._bound
        index, priorities = index[low], priorities[low]
        self._priorities.append(priorities)
        self._rows.append(rows[index.to(rows.device)].to("cpu", self._rows[0].dtype))
        # Sorting copies what is kept; it is done once for as many new rows.
        if sum(map(len, self._priorities)) > 2 * self._limit:
            self.kept()

    def kept(self) -> tuple[Tensor, Tensor]:
        """Rows ``(rows, features)`` sorted by their priorities ``(rows,)``, which come second."""
        priorities, rows = torch.cat(self._priorities), torch.cat(self._rows)
        order = priorities.argsort(stable=True)[: self._limit]
        self._priorities, self._rows = [priorities[order]], [rows[order]]
        if len(order) == self._limit:
            self._bound = float(self._priorities[0][-1])
        return self._rows[0], self._priorities[0]


@dataclass
class RowPriorities:
    """The priorities of the rows of one batch.

    Attributes:
        fingerprints: one for each example.
        seed: of the draw.
    """

    fingerprints: list[int]
    seed: int
    _known: dict[tuple[object, ...], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def priorities(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """The rows that count and their priorities: both of shape ``(rows,)``."""
        key = (seen.layout, seen.leading, seen.call)
        if key not in self._known:
            try:
                of = seen.layout.examples(seen.leading, len(self.fingerprints))
            except InputError as error:
                raise InputError(f"{seen.weight.name!r}: {error}") from error
            rows = torch.arange(len(of)) if seen.valid is None else seen.valid.cpu().nonzero().flatten()
            priorities = torch.empty(len(of), dtype=torch.float64)
            for example, fingerprint in enumerate(self.fingerprints):
                own = rows[of[rows] == example]
                draw = np.random.default_rng((self.seed, seen.call, fingerprint)).random(len(own))
                priorities[own] = torch.from_numpy(draw)
            self._known[key] = rows, priorities[rows]
        return self._known[key]
