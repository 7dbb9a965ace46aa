"""A fusion of models that are larger than memory: twins are made and merged a part at a time.

The twins lie in the unfinished output while they are merged, and are removed then. Where nothing is to be matched there
are none: models are merged as they lie in their files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence

import torch
from jsonargparse import Namespace

from fusionlab.advice import AUTO, Choice, choose_stored
from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.batch_norm import averaged_note
from fusionlab.checkpoints.card import CARD, merge_card
from fusionlab.checkpoints.fp8 import note as scaled_note
from fusionlab.commands import match_stream, merging_options
from fusionlab.commands.fuse_output import tell_fusion
from fusionlab.commands.fuse_twins import in_one_basis, moved_by
from fusionlab.commands.merge_informed import described as statistics_described
from fusionlab.commands.merge_output import progress
from fusionlab.commands.repeat import REPEAT, WHERE
from fusionlab.commands.sentence_modules import modules_of_fusion
from fusionlab.commands.sizes_stream import OneSize
from fusionlab.commands.unknown_class import unmatched_notes
from fusionlab.dtypes import main_of, merge_note_of, widest
from fusionlab.errors import InputError
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.folder import write
from fusionlab.evaluation.results import UNMATCHED, Results
from fusionlab.evaluation.wording import listing
from fusionlab.experiment import NOTED_ROUNDING, REPORT_BYTES, Plan
from fusionlab.growing import described as described_growth
from fusionlab.matching.align import choose_anchor
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method
from fusionlab.paths import expanded
from fusionlab.statistics import Statistics
from fusionlab.streaming import (
    Manifest,
    StoredModel,
    made_of,
    refuse_other,
    stream_merge,
    under_one_naming,
    write_side_files,
)
from fusionlab.streaming import Recipe as Merge
from fusionlab.streaming.informed import Informed
from fusionlab.streaming.moving import informed_of_twins
from fusionlab.streaming.part_files import remove_parts
from fusionlab.trainers import device_of

_TWINS, _MERGED = "twins", "merged"
# Paths, in whose place the files are told.
_PATHS = ("ckpts", "base", "statistics")


class FusionOfFiles:
    """One fusion, a part of the parameters at a time; without a matching there are no twins.

    Args:
        sized: the end models.
        base: the model that all come from, or None.
        plan: how they are fused.
        choice: of the matching, where advice made it.
        named: the end models with the names of the first, where they have others.
        known: what the merge looks at beside them, or None.
        given: statistics of any of them.
    """

    def __init__(
        self,
        sized: OneSize,
        base: StoredModel | None,
        plan: Plan,
        choice: Choice | None,
        named: Sequence[StoredModel],
        known: Informed | None,
        given: Sequence[Mapping[str, Statistics]],
    ) -> None:
        models = sized.models
        self.sized, self.models, self.base, self.plan, self.choice = sized, models, base, plan, choice
        self.named, self.known, self.given = named, known, given
        if len(models) < 2:
            raise InputError(f"merging was given {len(models)} model; expected at least two")
        labels = list(models)
        self.anchor = labels[choose_anchor([{} for _ in labels], plan.anchor)]
        ordered = [*(label for label in labels if label != self.anchor), self.anchor]
        of_base = {} if base is None else {_free("base model", labels): base}
        self.labels, self.of_base = labels, next(iter(of_base), None)
        ((method, values),) = plan.methods.items()
        weights = merge_weights(plan.weights, len(labels))
        self.merge = Merge(find_method(method), values, weights, plan.seed, plan.dtype)
        self.planned = self.merge.types(self.named)
        self.merge.method.check(weights, values, list(self.planned))
        # A twin is rounded to its model's own type, or to that of the merge where that is as wide.
        types = [model.main_dtype for model in models.values()]
        dtype = plan.dtype if plan.dtype is not None and widest([*types, plan.dtype]) == plan.dtype else None
        matched = {label: models[label] for label in ordered} | of_base
        self.name, recipe = next(iter(plan.matchings.items()), (UNMATCHED, None))
        self.twins = None if recipe is None else match_stream.Twins(matched, len(labels) - 1, recipe, dtype, plan.seed)
        if self.twins is not None:
            self.twins.go_to(device_of(str(plan.trainer.get("accelerator", "auto"))))
        self.size = sum(tensor.size for tensor in self.planned.values())
        # Numbers on the way of a matching are gone when the merge is written; twins are not.
        self.scratch = 0 if self.twins is None else self.twins.size + max(0, self.twins.described.beside - self.size)
        self.space = self.size + self.scratch + REPORT_BYTES + MIB

    def run(self, arguments: Namespace, command: str, repeat: str) -> None:
        """Match, merge, write the output and tell."""
        recipe = "nothing is matched" if self.twins is None else self.twins.recipe
        settings = {
            "command": command,
            "matching": f"{self.name}{'' if self.choice is None else f', chosen by {AUTO}'} ({recipe})",
            "anchor": self.anchor,
            "merge methods": self.merge.method.name,
            "seed": str(self.plan.seed),
        }
        first, output = self.models[self.labels[0]], expanded(arguments.output)
        described = self._described(arguments) if arguments.resume else None
        done = 0 if described is None else refuse_other(output, described)
        require_space(output, self.space - done, self.scratch)
        advised = (choose_stored(self.sized.given).advice if self.choice is None else self.choice).note
        modules, told = modules_of_fusion(self.sized.given, self.plan, arguments.base)
        merging_options.begin_hashes(self.sized.given, arguments)
        start = time.perf_counter()
        with atomic_folder(output, arguments.overwrite, arguments.resume) as folder:
            made = []
            manifest = None if described is None else Manifest(folder, described)
            if self.twins is not None:
                with progress("matching", self.twins.size) as advance:
                    made = self.twins.make(folder / _TWINS, advance, manifest)
            ends_and_base = dict(self.models)
            if self.base is not None and self.of_base is not None:
                ends_and_base[self.of_base] = self.base
            matched = in_one_basis(ends_and_base, self.twins, folder / _TWINS)
            (folder / _MERGED).mkdir(exist_ok=True)
            base = None if self.of_base is None else matched.pop(self.of_base)
            named = under_one_naming([*matched.values(), *([] if base is None else [base])])
            ends, of_base = named[: len(matched)], None if base is None else named[-1]
            with progress("merging", self.size) as advance:
                place = (folder / _MERGED, None, advance, manifest, f"{_MERGED}/")
                if self.known is None:
                    merged = stream_merge(ends, of_base, self.merge, *place)
                else:
                    twins = moved_by(self.named, dict(zip(self.labels, ends, strict=True)), self.twins, folder / _TWINS)
                    with informed_of_twins(self.known, twins, self.given) as known:
                        merged = known.merge(ends, self.merge, *place)
            parents = merging_options.parents(self.sized.given, arguments)
            how = {key: settings[key] for key in ("matching", "anchor")} | merging_options.described(arguments)
            how |= {f"{label}, grown": described_growth(growth) for label, growth in self.sized.growths.items()}
            main = main_of((tensor.dtype, tensor.count) for tensor in self.planned.values())
            card = merge_card(parents, how, first.format)
            write_side_files(first, folder / _MERGED, main, {CARD: card, **modules})
            (folder / REPEAT).write_text(repeat, encoding="utf-8")
            seconds = self.sized.seconds + time.perf_counter() - start
            notes = [
                advised,
                *self.sized.notes,
                self._work(seconds),
                *unmatched_notes(self.models),
                *self._notes(),
                *([note] if (note := merge_note_of(self._types(), self.plan.dtype)) else []),
                *([averaged_note()] if merged.averaged else []),
                *told,
            ]
            notes += [
                f"{one.name}: the matched twin is exact, but rounded to the type it is stored in it changes the logits "
                f"by {one.difference:.1%} of the largest; checkpoints of a wider type keep the function."
                for one in made
                if one.difference > NOTED_ROUNDING
            ]
            results = Results(
                f"Merging {listing(self.labels)}",
                tuple(self.labels),
                distances=[self._distance(one) for one in made],
                settings=settings,
                notes=notes,
                kept=(self.merge.method.name, self.name),
            )
            write(results, folder)
            # Last, as a call that goes on makes them again where they are not there.
            shutil.rmtree(folder / _TWINS, ignore_errors=self.twins is None)
            remove_parts(folder)
        tell_fusion(results, output, {self.name: max(one.difference for one in made)} if made else {})

    def _described(self, arguments: Namespace) -> dict[str, object]:
        """All that the output is made of, and how."""
        options = {name: value for name, value in arguments.as_dict().items() if name not in (*WHERE, *_PATHS)}
        matching = "nothing" if self.twins is None else str(self.twins.recipe)
        of_base = {} if self.base is None else {"that all come from": self.base}
        options |= {"the matching": matching, **statistics_described(arguments)}
        return made_of({"the command": "fuse", **options}, {**self.models, **of_base})

    def _work(self, seconds: float) -> str:
        """A sentence on what was done, and how long it took."""
        steps = {"growing": self.sized.growths, "matching": self.twins}
        work = listing([*(step for step, done in steps.items() if done), "merging"])
        measured = "nothing was" if self.twins is None else "only distances between the models were"
        return (
            f"No data was given, so {measured} measured. Models and merge were never in memory as a whole; {work} took "
            f"{seconds:.1f} s."
        )

    def _notes(self) -> list[str]:
        """Sentences on models that are dequantised, and on the basis of the base model that the method looks at."""
        bases = [] if self.base is None else [self.base]
        notes = [scaled_note(one.source, one.config) for one in (*self.sized.given.values(), *bases) if one.is_scaled]
        if bases and self.twins is not None and "base" in self.merge.method.requires(**self.merge.hyperparameters):
            moved = "was brought into" if self.twins.recipe.gauge else "is in"
            notes.append(f"{self.name}: the base model {moved} the basis of the matched models, that of {self.anchor}.")
        return notes

    def _types(self) -> dict[str, torch.dtype]:
        return {label: model.main_dtype for label, model in self.models.items()}

    def _distance(self, one: match_stream.MadeTwin) -> Distance:
        given, before, after = one.distances
        in_gauge = self.twins is not None and bool(self.twins.recipe.gauge)
        return Distance(
            one.name, self.anchor, self.name, "all parameters", None, before, after, given if in_gauge else None
        )


def _free(name: str, taken: list[str]) -> str:
    """A name that no model has."""
    while name in taken:
        name += "'"
    return name
