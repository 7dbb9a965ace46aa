"""Growing of models that lie in files: what is needed is found out first, then parts are read, grown and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fusionlab.checkpoints.weightless import Weightless, without_memory
from fusionlab.commands.match_parts import NotByPartsError
from fusionlab.dtypes import main_of
from fusionlab.evaluation.preservation import EXACT
from fusionlab.growing import Growth
from fusionlab.growing.axes import Widening
from fusionlab.growing.choices import difference, exact_choice
from fusionlab.growing.cost import counting
from fusionlab.growing.epsilons import other_epsilon, other_epsilons
from fusionlab.growing.filling import TRIED_ON, Filling, take_unseen
from fusionlab.growing.growth import OTHERS, grown_sizes, is_tied_otherwise, numbers_of, side_by_side
from fusionlab.growing.layers import lists_of, placements
from fusionlab.streaming import StoredModel, open_folder
from fusionlab.streaming.classes import class_of
from fusionlab.streaming.filled import FillingParts
from fusionlab.streaming.grown import GrowingParts, Grown
from fusionlab.streaming.larger import Larger, untied
from fusionlab.streaming.running import INPUTS, Provide, logits_of
from fusionlab.streaming.scratch import Scratch
from fusionlab.streaming.shards import like, written
from fusionlab.streaming.twins import PartReader
from fusionlab.symmetry.any_model import blueprint

Advance = Callable[[int], object]


class GrowingFiles:
    """A model of files that is grown into a larger architecture, exactly: how is known, and nothing is written yet.

    Args:
        both: the small model and the larger architecture.
        other: the larger model's files, from which what is new and changes nothing is taken; None for zeros.

    Attributes:
        size: bytes that are written.
        beside: bytes that lie on the disk meanwhile.

    Raises:
        InputError: a model that cannot be grown.
        NotByPartsError: it must be grown in memory.
    """

    def __init__(self, both: Larger, other: StoredModel | None = None) -> None:
        small, large, stored = both.small.model, both.large.model, both.stored
        self.both, self.other = both, other
        self.places = placements(small, large, None, lists_of(blueprint(small).stacks))
        embedding = side_by_side(small, large, self.places)
        self.inputs = embedding.small.inputs
        self.growing = GrowingParts(embedding, both.small, both.large, stored.dtypes)
        self.plan = self.growing.planned()
        self.size, self.beside = sum(tensor.size for tensor in self.plan.values()), 0
        self.reference, self.operations = self._as_stored(both.made, stored)
        with self._small() as reader:

            def with_numbers(changed: PreTrainedModel) -> Tensor:
                return self._logits(replace(both.small, model=changed), lambda name: reader.read([name])[name])

            with without_memory():
                epsilon = other_epsilon(small, large, with_numbers)
            self.found = exact_choice(
                embedding, small, large, lambda tried: self._grown(reader, tried), self.reference, epsilon
            )
        self.filling: FillingParts | None = None
        if other is not None:
            if (made := class_of(other)) is None:
                raise NotByPartsError(
                    f"the tensors of {other.source} are stored in another way than its class has them"
                )
            made = untied(made) if is_tied_otherwise(made.model, large) else made
            self.filling = FillingParts(self.growing, self.widening, made)
            self.beside = self.filling.beside

    @property
    def widening(self) -> Widening:
        """The maps into the larger architecture."""
        return self.found.widening

    def write(self, folder: Path, most: int, advance: Advance, scratch: Path) -> Growth[PreTrainedModel]:
        """Write the grown model's weights and config, run what was written, and tell of it.

        Args:
            folder: to write into.
            most: bytes of a file.
            advance: is told how many bytes have been written since it was called last.
            scratch: a folder to make for numbers on the way; it is removed.

        Raises:
            InputError: numbers that are NaN or infinite, or that the type to write in cannot hold.
            NotByPartsError: it must be grown in memory.
        """
        both, embedding, small, large = self.both, self.growing.embedding, self.both.small.model, self.both.large.model
        error = self.found.error
        with self._small() as reader, Scratch(scratch) as beside:

            def grown() -> Grown:
                return Grown(self.growing, reader, self.widening)

            make: Callable[[], Provide] = grown
            held: Callable[[str], int] = _nothing
            parts, filling = self.filling, None
            if parts is not None:
                filling, error = self._filled(parts, grown(), beside)
            if parts is not None and filling is not None:
                make, held = self._making(parts, filling, grown), parts.held
            with written(folder, like(both.stored, self.plan, most), self.plan) as writer:
                self.growing.write(make, writer, advance, held)
        config = large.config
        config.architectures = [type(large).__name__]
        config.dtype = main_of((one.dtype, one.count) for one in self.plan.values())
        config.save_pretrained(folder)
        made = open_folder(both.stored.source, folder)
        assert made is not None
        logits, operations = self._as_stored(both.large, made)
        return Growth(
            large,
            grown_sizes(embedding.small, self.widening),
            tuple(placement for placement in self.places if placement.deepens),
            (numbers_of(small), numbers_of(large)),
            (self.operations, operations),
            error,
            difference(logits, self.reference),
            other_epsilons(small, large),
            self.widening.choice.stretch.length,
            self.found.effect,
        )

    def _filled(self, parts: FillingParts, grown: Grown, scratch: Scratch) -> tuple[Filling | None, float]:
        """The filling that changes nothing, and the error; none where other inputs tell of a change."""
        assert self.other is not None
        with self.other.opened() as opened:
            theirs = parts.brought(grown, PartReader(opened, parts.other, torch.float64), scratch)
        filling, large, error = parts.filling(grown, theirs.__getitem__), self.both.large, self.found.error
        take_unseen(filling, parts.kinds, lambda made: self._logits(large, parts.entries(made), count=TRIED_ON))
        before, after = (self._logits(large, provide, **OTHERS) for provide in (grown, parts.entries(filling)))
        change = difference(after, before)
        return (filling, max(error, change)) if change <= EXACT else (None, error)

    def _making(self, parts: FillingParts, found: Filling, grown: Callable[[], Grown]) -> Callable[[], Provide]:
        """A maker of providers of the filled model's parameters, each for one thread."""

        def filled() -> Provide:
            own = parts.filling(grown(), found.theirs)
            own.taken = found.taken
            return parts.entries(own)

        return filled

    def _grown(self, reader: PartReader, widening: Widening) -> Tensor:
        return self._logits(self.both.large, Grown(self.growing, reader, widening))

    @contextmanager
    def _small(self) -> Iterator[PartReader]:
        with self.both.stored.opened() as opened:
            yield PartReader(opened, self.both.small)

    def _logits(self, model: Weightless, provide: Provide, seed: int = 0, count: int = INPUTS) -> Tensor:
        try:
            return logits_of(model.model, provide, self.inputs, seed, count)
        except (RuntimeError, TypeError) as error:
            raise NotByPartsError(f"the modules of a {type(model.model).__name__} do not run by themselves") from error

    def _as_stored(self, model: Weightless, files: StoredModel) -> tuple[Tensor, int]:
        """Logits of a model of files, and the operations of the products of one pass."""
        with files.opened() as opened, counting() as counter:
            reader = PartReader(opened, model)
            found = self._logits(model, lambda name: reader.read([name])[name])
        return found, int(counter.get_total_flops()) // INPUTS


def _nothing(_: str) -> int:
    return 0
