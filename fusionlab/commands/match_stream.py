"""`fusionlab match` of models that are larger than memory: twins are made and written a part at a time.

That needs folders of safetensors whose tensors have the names of their class, and spaces that do not meet on one
parameter, such as the heads and the feed-forward units that the paper matches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from jsonargparse import Namespace
from torch import Tensor

from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.checkpoints.card import CARD
from fusionlab.checkpoints.files import GENERATION_CONFIG, read_json
from fusionlab.checkpoints.fp8 import note as scaled_note
from fusionlab.commands.match_output import ALIGNMENT, ALIGNMENT_SUFFIX, MatchTable, card, kept_basis_note, types_note
from fusionlab.commands.match_parts import NotByPartsError, described
from fusionlab.commands.merge_output import progress
from fusionlab.commands.repeat import REPEAT
from fusionlab.dtypes import differing_of, find_dtype, main_of
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import preserved
from fusionlab.matching.recipe import Recipe
from fusionlab.paths import expanded
from fusionlab.streaming import (
    Manifest,
    StoredModel,
    Tally,
    made_of,
    open_folder,
    open_folders,
    refuse_other,
    write_side_files,
)
from fusionlab.streaming.part_files import PartFiles, remove_parts
from fusionlab.streaming.running import logits_of
from fusionlab.streaming.shards import like, written
from fusionlab.streaming.stored import Reader, TensorSpec
from fusionlab.streaming.twins import Matched, Moved, PartReader, TwinFiles, match_parts, planned, write_moved
from fusionlab.symmetry import Alignment

# Models with fewer bytes of weights are matched in memory, where many layers are solved at once.
IN_MEMORY = 2**28
# Random inputs that function preservation is checked on.
INPUTS = 4
# Options that say where to write and what to print, and paths, in whose place the files are told.
_WHERE = ("config", "output", "overwrite", "resume", "json", "sources", "anchor", "base")


def by_parts(arguments: Namespace, recipe: Recipe, repeat: str) -> list[str] | None:
    """Match a part at a time where models are large and may be matched so; write, and tell what was done.

    Args:
        arguments: of the command.
        recipe: that they describe.
        repeat: a config that repeats the command.

    Returns:
        None where all is done; else what is to be known of why whole models must be held in memory.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    given = [arguments.get(name) for name in ("example", "probes", "samples")]
    if any(value is not None for value in given) or arguments.untie:
        return []
    paths = (*arguments.sources, arguments.anchor, *([] if arguments.base is None else [arguments.base]))
    found = open_folders(paths, arguments.names)
    stored = {name: model for name, model in found.items() if model is not None}
    if max((_bytes(model) for model in stored.values()), default=0) < IN_MEMORY and not arguments.resume:
        return []
    try:
        if len(stored) < len(found):
            other = next(name for name in found if name not in stored)
            raise NotByPartsError(f"{other} is stored in another way than a folder of safetensors")
        task = _Task(arguments, recipe, stored, repeat)
    except NotByPartsError as error:
        if arguments.resume:
            raise InputError(f"resume goes on with models that are matched a part at a time, but {error}") from error
        return [f"Whole models were held in memory: {error}."]
    task.run()
    return None


def _bytes(model: StoredModel) -> int:
    return sum(tensor.size for tensor in model.tensors.values())


class _Task:
    """One run of the command, a part of the parameters at a time.

    Args:
        arguments: of the command.
        recipe: that they describe.
        models: sources, the anchor and the base if there is one, by name.
        repeat: a config that repeats the command.

    Raises:
        NotByPartsError: they must be matched in memory.
    """

    def __init__(self, arguments: Namespace, recipe: Recipe, models: Mapping[str, StoredModel], repeat: str) -> None:
        self.arguments, self.recipe, self.models, self.repeat = arguments, recipe, models, repeat
        self.manifest: Manifest | None = None
        self.output, self.dtype = expanded(arguments.output), find_dtype(arguments.dtype)
        names = list(models)
        self.sources, self.anchor = names[: len(arguments.sources)], names[len(arguments.sources)]
        self.base = None if arguments.base is None else names[-1]
        self.described = described(models, recipe)
        # A gauge changes the anchor's weights too, and the base model follows the anchor.
        self.moved = names if recipe.gauge else self.sources
        self.references = {name: self._run(name, models[name]) for name in self.moved}

    def run(self) -> None:
        """Make, check and write all twins, and tell."""
        plans = {name: planned(self.models[name], self.dtype) for name in self.moved}
        size = sum(tensor.size for plan in plans.values() for tensor in plan.values())
        described, done = None, 0
        if self.arguments.resume:
            options = {name: value for name, value in self.arguments.as_dict().items() if name not in _WHERE}
            described = made_of({"the command": "match", **options, "the matching": str(self.recipe)}, self.models)
            done = refuse_other(self.output, described)
        require_space(self.output, size - done + MIB)
        for name in self.moved:
            if (generation := self.models[name].location / GENERATION_CONFIG).is_file():
                read_json(generation)
        table = MatchTable(self.anchor, bool(self.recipe.gauge))
        with (
            atomic_folder(self.output, self.arguments.overwrite, self.arguments.resume) as folder,
            progress("matching", size) as advance,
        ):
            self.manifest = None if described is None else Manifest(folder, described)
            places = {name: folder if len(self.moved) == 1 else folder / name for name in self.moved}
            for place in places.values():
                place.mkdir(parents=True, exist_ok=True)
            (folder / REPEAT).write_text(self.repeat, encoding="utf-8")
            for name in self.sources:
                start = time.perf_counter()
                along = self.anchor if self.recipe.gauge and name == self.sources[0] else None
                matched = self._match(name, along, places, plans, advance)
                seconds = time.perf_counter() - start
                difference = self._finish(name, matched.source, matched.alignment, places[name], plans[name])
                table.add(name, matched.distances if self.recipe.gauge else matched.distances[1:], difference, seconds)
                if along is not None:
                    for other in self.moved[len(self.sources) :]:
                        if other == self.base:
                            self._move(other, matched, places[other], plans[other], advance)
                        self._finish(other, matched.anchor, matched.of_anchor, places[other], plans[other])
            remove_parts(folder)
        kept = [] if self.base is None or self.recipe.gauge else [kept_basis_note(self.anchor, self.base)]
        words = differing_of({name: model.main_dtype for name, model in self.models.items()})
        scaled = [scaled_note(one.source, one.config) for one in self.models.values() if one.is_scaled]
        table.tell([*scaled, *types_note(words, self.dtype), *kept], self.output)

    def _match(
        self,
        name: str,
        along: str | None,
        places: Mapping[str, Path],
        plans: Mapping[str, Mapping[str, TensorSpec]],
        advance: Callable[[int], object],
    ) -> Matched:
        """Match a source to the anchor; write its twin, and the anchor's where one is asked for."""
        with ExitStack() as stack:
            source, anchor = (
                self._reader(n, stack.enter_context(self.models[n].opened())) for n in (name, self.anchor)
            )
            files = [None if n is None else self._written(stack, n, places[n], plans[n]) for n in (name, along)]
            assert files[0] is not None
            known = None if self.manifest is None else PartFiles(self.manifest, name)
            return match_parts(self.described.parts, source, anchor, (files[0], files[1]), advance, known)

    def _move(
        self,
        name: str,
        matched: Matched,
        place: Path,
        plan: Mapping[str, TensorSpec],
        advance: Callable[[int], object],
    ) -> None:
        """Write the base model's twin in the basis of the anchor's."""
        with ExitStack() as stack:
            files = self._written(stack, name, place, plan)
            reader = self._reader(name, stack.enter_context(self.models[name].opened()))
            write_moved(reader, matched.anchor, files, advance)

    def _finish(
        self, name: str, alignments: Sequence[Alignment], whole: Alignment, place: Path, plan: Mapping[str, TensorSpec]
    ) -> float:
        """Write what lies beside a twin's weights, and compare it with its model.

        Returns:
            The largest difference in logits of the twin as it is stored, relative to the largest logit.
        """
        model = self.models[name]
        text = card(name, model, self.anchor, self.recipe, self.arguments.seed)
        write_side_files(model, place, main_of((tensor.dtype, tensor.count) for tensor in plan.values()), {CARD: text})
        beside = len(self.moved) > 1
        whole.save(place.with_name(f"{place.name}{ALIGNMENT_SUFFIX}") if beside else place / ALIGNMENT)
        with model.opened() as reader:
            exact = self._logits(Moved(self._reader(name, reader), alignments))
        twin = open_folder(str(place), place)
        assert twin is not None
        return preserved(self.references[name], exact, self._run(name, twin)).stored

    def _reader(self, name: str, reader: Reader) -> PartReader:
        return PartReader(reader, self.described.made[name], self.dtype)

    def _written(self, stack: ExitStack, name: str, place: Path, plan: Mapping[str, TensorSpec]) -> TwinFiles:
        files = like(self.models[name], plan, None)
        prefix = f"{name}/" if len(self.moved) > 1 else ""
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
        return logits_of(self.described.model, provide, inputs, self.arguments.seed, INPUTS)
