"""`fusionlab match` of models that are larger than memory: twins are made and written a part at a time.

That needs folders of safetensors whose tensors have the names of their class. Where spaces that are matched meet on one
parameter, as the residual stream meets all others, both models lie on the disk while they are matched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from jsonargparse import Namespace
from torch import Tensor

from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.checkpoints.card import CARD
from fusionlab.checkpoints.files import GENERATION_CONFIG, read_json
from fusionlab.checkpoints.fp8 import note as scaled_note
from fusionlab.commands.match_output import MadeTwin, MatchTable, alignment_file, card, kept_basis_note, types_note
from fusionlab.commands.match_parts import NotByPartsError, described, leave_to_memory, refuse_whole
from fusionlab.commands.merge_output import progress
from fusionlab.commands.repeat import REPEAT, WHERE
from fusionlab.commands.sizes_stream import OneSize, of_one_size
from fusionlab.dtypes import differing_of, find_dtype, main_of
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import preserved
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.paths import expanded
from fusionlab.streaming import (
    Manifest,
    StoredModel,
    Tally,
    made_of,
    open_folder,
    open_models,
    refuse_other,
    write_side_files,
)
from fusionlab.streaming.part_files import PartFiles, remove_parts
from fusionlab.streaming.running import INPUTS, logits_of
from fusionlab.streaming.shards import like, written
from fusionlab.streaming.stored import Reader
from fusionlab.streaming.twins import Matched, Moved, PartReader, TwinFiles, planned, write_moved
from fusionlab.symmetry import Alignment

# Models with fewer bytes of weights are matched in memory, where many layers are solved at once.
IN_MEMORY = 2**28
# What holds numbers on the way; no twin is called so.
_SCRATCH = ".fusionlab-scratch"
# Paths, in whose place the files are told.
_PATHS = ("sources", "anchor", "base")


def by_parts(arguments: Namespace, recipe: Recipe, repeat: str, workplace: Workplace = HERE) -> list[str] | None:
    """Match a part at a time where models are large and may be matched so; write, and tell what was done.

    Args:
        arguments: of the command.
        recipe: that they describe.
        repeat: a config that repeats the command.
        workplace: where parts are matched; of several processes the first does all.

    Returns:
        None where all is done; else what is to be known of why whole models must be held in memory.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    given = [arguments.get(name) for name in ("example", "probes", "samples", "length")]
    if any(value is not None for value in given) or arguments.untie:
        return []
    paths = (*arguments.sources, arguments.anchor, *([] if arguments.base is None else [arguments.base]))
    found = open_models(paths, arguments.names, arguments.base)
    stored = {name: model for name, model in found.items() if model is not None}
    if is_small(stored, arguments):
        return []
    try:
        if len(stored) < len(found):
            other = next(name for name in found if name not in stored)
            raise NotByPartsError(f"{other} is stored in another way than a folder of safetensors")
        refuse_whole(recipe)
        output, sources = expanded(arguments.output), len(arguments.sources)
        with of_one_size(stored, output, recipe.matches, _unlike(arguments, workplace)) as sized:
            twins = Twins(sized.models, sources, recipe, find_dtype(arguments.dtype), arguments.seed, sized)
            beside = twins.described.beside
            if not arguments.resume:
                leave_to_memory(output, twins.size + beside + MIB, beside, stored.values())
            twins.go_to(workplace.device)
            if workplace.team.rank == 0:
                _run(arguments, twins, repeat)
    except NotByPartsError as error:
        if arguments.resume:
            raise InputError(f"resume goes on with models that are matched a part at a time, but {error}") from error
        return [f"Whole models were held in memory: {error}."]
    return None


def _unlike(arguments: Namespace, workplace: Workplace) -> str | None:
    """A reason why models of different sizes are left to memory, in words; None where there is none."""
    if arguments.base is not None:
        return "fine-tunes of one base are not"
    if arguments.resume:
        return "nothing goes on with what is grown on the way; fusionlab grow --fill makes them of one size first"
    return None if workplace.team.size == 1 else "one process alone grows a part at a time"


def _run(arguments: Namespace, twins: Twins, repeat: str) -> None:
    """Make, check and write all twins, and tell."""
    output, described, done = expanded(arguments.output), None, 0
    if arguments.resume:
        options = {name: value for name, value in arguments.as_dict().items() if name not in (*WHERE, *_PATHS)}
        described = made_of({"the command": "match", **options, "the matching": str(twins.recipe)}, twins.models)
        done = refuse_other(output, described)
    require_space(output, twins.size + twins.described.beside - done + MIB, twins.described.beside)
    table = MatchTable(twins.anchor, bool(twins.recipe.gauge))
    with (
        atomic_folder(output, arguments.overwrite, arguments.resume) as folder,
        progress("matching", twins.size) as advance,
    ):
        manifest = None if described is None else Manifest(folder, described)
        made = twins.make(folder, advance, manifest)
        if manifest is not None:
            remove_parts(folder)
        (folder / REPEAT).write_text(repeat, encoding="utf-8")
    for one in made:
        table.add(one.name, one.distances if twins.recipe.gauge else one.distances[1:], one.difference, one.seconds)
    table.tell(twins.notes, output)


def is_small(models: Mapping[str, StoredModel], arguments: Namespace) -> bool:
    """True if models are held in memory, as the largest is small and nothing is gone on with."""
    sizes = (model.size for model in models.values())
    return max(sizes, default=0) < IN_MEMORY and not arguments.resume


class Twins:
    """The twins of some models, made a part of the parameters at a time.

    Args:
        models: sources, the anchor and the base if there is one, by name.
        sources: how many of them are matched.
        recipe: how.
        dtype: that twins are written in; of each its model's own if None.
        seed: of anything random.
        sized: what was grown among them, so that an anchor gets a twin that was; None where that is not to be told.

    Raises:
        NotByPartsError: they must be matched in memory.
    """

    def __init__(
        self,
        models: Mapping[str, StoredModel],
        sources: int,
        recipe: Recipe,
        dtype: torch.dtype | None,
        seed: int,
        sized: OneSize | None = None,
    ) -> None:
        self.models, self.recipe, self.dtype, self.seed = models, recipe, dtype, seed
        self.manifest: Manifest | None = None
        self.sized = OneSize(models, models) if sized is None else sized
        names = list(models)
        self.sources, self.anchor = names[:sources], names[sources]
        self.base = names[-1] if len(names) > sources + 1 else None
        self.described = described(models, recipe)
        # A gauge changes the anchor's weights too, and the base model follows the anchor.
        self.moved = names if recipe.gauge or self.anchor in self.sized.growths else self.sources
        self.references = {name: self._run(name, models[name]) for name in self.moved}
        self.plans = {name: planned(models[name], dtype) for name in self.moved}
        for name in self.moved:
            if (generation := models[name].location / GENERATION_CONFIG).is_file():
                read_json(generation)

    def go_to(self, device: torch.device | None) -> None:
        """Match on a device from here on, on the processor if None."""
        self.described = replace(self.described, device=device)

    @property
    def size(self) -> int:
        """The bytes of all twins."""
        return sum(tensor.size for plan in self.plans.values() for tensor in plan.values())

    @property
    def notes(self) -> list[str]:
        """Sentences on the types that models are stored in, and on a base model that keeps its basis."""
        kept = [] if self.base is None or self.recipe.gauge else [kept_basis_note(self.anchor, self.base)]
        words = differing_of({name: model.main_dtype for name, model in self.models.items()})
        scaled = [scaled_note(one.source, one.config) for one in self.sized.given.values() if one.is_scaled]
        return [*scaled, *types_note(words, self.dtype), *self.sized.notes, *kept]

    def place(self, name: str, folder: Path) -> Path:
        """The folder of a twin in that of all; of a single one that folder itself."""
        return folder if len(self.moved) == 1 else folder / name

    def make(self, folder: Path, advance: Callable[[int], object], manifest: Manifest | None = None) -> list[MadeTwin]:
        """Make, check and write all twins.

        Args:
            folder: to write into.
            advance: is told how many bytes have been written since it was called last.
            manifest: of the folder or of one around it, where a later call may go on with it; what was found of parts
                stays there (`remove_parts`).

        Returns:
            The twin of each source.
        """
        self.manifest = manifest
        places, made = {name: self.place(name, folder) for name in self.moved}, []
        for place in places.values():
            place.mkdir(parents=True, exist_ok=True)
        for name in self.sources:
            start = time.perf_counter()
            along = self.anchor if self.anchor in self.moved and name == self.sources[0] else None
            matched = self._match(name, along, places, folder / _SCRATCH, advance)
            seconds = time.perf_counter() - start
            difference = self._finish(name, matched.source, matched.alignment, places[name])
            made.append(MadeTwin(name, matched.distances, difference, seconds))
            if along is not None:
                for other in self.moved[len(self.sources) :]:
                    if other == self.base:
                        self._move(other, matched, places[other], advance)
                    self._finish(other, matched.anchor, matched.of_anchor, places[other])
        return made

    def _match(
        self,
        name: str,
        along: str | None,
        places: Mapping[str, Path],
        scratch: Path,
        advance: Callable[[int], object],
    ) -> Matched:
        """Match a source to the anchor; write its twin, and the anchor's where one is asked for."""
        with ExitStack() as stack:
            source, anchor = (
                self._reader(n, stack.enter_context(self.models[n].opened())) for n in (name, self.anchor)
            )
            files = [None if n is None else self._written(stack, n, places[n]) for n in (name, along)]
            assert files[0] is not None
            known = None if self.manifest is None else PartFiles(self.manifest, name)
            return self.described.match((source, anchor), (files[0], files[1]), scratch, advance, known)

    def _move(self, name: str, matched: Matched, place: Path, advance: Callable[[int], object]) -> None:
        """Write the base model's twin in the basis of the anchor's."""
        with ExitStack() as stack:
            files = self._written(stack, name, place)
            reader = self._reader(name, stack.enter_context(self.models[name].opened()))
            write_moved(reader, matched.anchor, files, advance)

    def _finish(self, name: str, alignments: Sequence[Alignment], whole: Alignment, place: Path) -> float:
        """Write what lies beside a twin's weights, and compare it with its model.

        Returns:
            The largest difference in logits of the twin as it is stored, relative to the largest logit.
        """
        model, plan = self.models[name], self.plans[name]
        given, growth = self.sized.given[name], self.sized.growths.get(name)
        text = card(name, given, self.anchor, self.recipe, self.seed, growth)
        write_side_files(model, place, main_of((tensor.dtype, tensor.count) for tensor in plan.values()), {CARD: text})
        whole.save(alignment_file(place, len(self.moved) == 1))
        with model.opened() as reader:
            exact = self._logits(Moved(self._reader(name, reader), alignments))
        twin = open_folder(str(place), place)
        assert twin is not None
        return preserved(self.references[name], exact, self._run(name, twin)).stored

    def _reader(self, name: str, reader: Reader) -> PartReader:
        return PartReader(reader, self.described.made[name], self.dtype)

    def _written(self, stack: ExitStack, name: str, place: Path) -> TwinFiles:
        plan = self.plans[name]
        files = like(self.models[name], plan, None)
        around = place if self.manifest is None else self.manifest.folder
        prefix = "" if place == around else f"{place.relative_to(around).as_posix()}/"
        done = {} if self.manifest is None else self.manifest.finished
        writer = stack.enter_context(written(place, files, plan, [file for file in files if f"{prefix}{file}" in done]))
        return TwinFiles(writer, stack.enter_context(Tally(files, plan, 0, self.manifest, prefix)))

    def _run(self, name: str, model: StoredModel) -> Tensor:
        """Logits of a model as it is stored.

        Raises:
            NotByPartsError: its modules read one another's parameters.
        """
        with model.opened() as opened:
            reader = self._reader(name, opened)
            try:
                return self._logits(lambda parameter: reader.read([parameter])[parameter])
            except (RuntimeError, TypeError) as error:
                raise NotByPartsError(f"the modules of {name} do not run by themselves") from error

    def _logits(self, provide: Callable[[str], Tensor]) -> Tensor:
        inputs = self.described.parts[0].inputs
        return logits_of(self.described.model, provide, inputs, self.seed, INPUTS)
