"""The main job as a LightningModule: gather, match, merge, polish, evaluate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.candidates import CandidateTest
from fusionlab.dtypes import main_dtype, rounded, widened, widest
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import distance_by_space, parameter_distance
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.evaluation.rows import END_MODEL, ENSEMBLE, NO_MATCHING, UNMATCHED
from fusionlab.evaluation.task_scores import score_of
from fusionlab.fused import Candidate, Fused, Matched, TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.align import choose_anchor, gauged
from fusionlab.matching.recipe import Recipe, align_models
from fusionlab.merging import find_method, merge_states, merge_weights
from fusionlab.merging.correction import correct
from fusionlab.models import common_blueprint, with_state
from fusionlab.polish import PolishOptions, polish
from fusionlab.statistics import Statistics
from fusionlab.statistics.store import StatisticsStore
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.trainers import TrainerFactory

# Batches that activations are measured on for a correction: it goes through them once for each linear map.
CORRECTION_BATCHES = 8
# What a merge method may need that is gathered from data.
STATISTICS = ("gram", "fisher", "activations")


class FusionModule(CandidateTest):
    """Matches and merges end models, and tests them and every merge side by side.

    `fuse` passes over the data that matching and merging need (none, for matching by weights and simple merging), each
    pass under a Trainer of its own, matches, checks and merges. ``trainer.test`` then scores every candidate on every
    loader; ``rows`` holds the numbers. Devices, precision and progress bars are the Trainers'.

    Args:
        models: end models by name, all of one architecture; not modified.
        matchings: recipes by the name to show them under; the unmatched merge is always made too.
        methods: merge methods with their hyperparameters; the first makes the merge that is kept.
        weights: one for each model, or None for equal ones.
        anchor: index of the model that the others are matched to, or ``nearest``.
        test_sets: what the test loaders are, in their order.
        inputs: what matching and merging may look at; where matching or polishing need some and there is none,
            synthetic ones are drawn. Merging never looks at synthetic ones unless they are given.
        statistics: of the end models, gathered before, for each.
        base: the model that all were fine-tuned from, for methods that need it; merges of twins use it in the twins'
            basis, which is the anchor's, gauge included.
        ensemble: whether the ensemble of the end models is tested too, as an upper reference.
        correct: whether the activations' mean and spread are corrected in the merge that is kept, and in the unmatched
            one to compare with.
        polish: how those two are then polished; None for not at all.
        trainer: makes a Trainer for each pass over data, see `TrainerFactory`; Lightning's own defaults if None.
        seed: of anything random.
        dtype: that merges will be written in, and are rounded to before they are tested; if None, the widest of the end
            models' own.

    Raises:
        InputError: fewer than two models, models that do not fit each other, or a method or option that does not exist.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        matchings: Mapping[str, Recipe],
        methods: Mapping[str, Mapping[str, Any]] | None = None,
        weights: Sequence[float] | None = None,
        anchor: int | str | None = None,
        test_sets: Sequence[TestSet] = (),
        inputs: Inputs | None = None,
        statistics: Sequence[Mapping[str, Statistics]] = (),
        base: nn.Module | None = None,
        ensemble: bool = False,
        correct: bool = False,
        polish: PolishOptions | None = None,
        trainer: TrainerFactory | None = None,
        seed: int = 0,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(test_sets)
        # In one type, as a merge in the narrower of two would round the numbers of the other; the base model in one at
        # least as wide.
        stored, self.written_dtype = models, dtype
        models = widened(models, dtype)
        if base is not None:
            base = widened({"base": base}, widest(main_dtype(model.state_dict()) for model in models.values()))["base"]
        self.names = tuple(models)
        self.blueprint = self.describe(models)
        self.end_models = nn.ModuleList(models.values()).eval()
        self.anchor = choose_anchor(self.states(list(models.values())), anchor)
        self.matchings = dict(matchings)
        for recipe in self.matchings.values():
            recipe.weights.select(self.blueprint)
        self.methods = {name: dict(values) for name, values in (methods or {"simple": {}}).items()}
        self.needs = {name: find_method(name).requires(**values) for name, values in self.methods.items()}
        self.weights = merge_weights(weights, len(models))
        self.inputs, self.ensemble, self.correct, self.polish, self.seed = inputs, ensemble, correct, polish, seed
        self.refuse_options()
        needed = correct or polish is not None or any(recipe.needs_inputs for recipe in self.matchings.values())
        if inputs is None and needed:
            self.inputs = Inputs.synthetic(list(models.values()), seed=seed)
        self.base = None if base is None else self.describe_base(base)
        self.trainer_factory = trainer
        settings = {"seed": seed, "labels": self.methods.get("fisher", {}).get("labels")}
        self.store = StatisticsStore(inputs, statistics, trainer, settings)
        for name, model in models.items():
            if model is not stored[name]:
                self.store.also_of(stored[name].state_dict(), model.state_dict())
        self.fused = Fused(self.anchor)
        # For each model which labels it knows; None where all know all.
        self.known: Sequence[Tensor] | None = None

    # --- match and merge -------------------------------------------------------------------------------------------

    def fuse(self) -> Fused:
        """Match by every matching, merge by every method, unmatched too; what is tested is all of it.

        Raises:
            InputError: data is needed and there is none, or a matching that changed a function.
        """
        ends = [Candidate((name,), END_MODEL, NO_MATCHING, model) for name, model in self._named()]
        merges = [self.merge(method, matching) for matching in (UNMATCHED, *self.matchings) for method in self.methods]
        unmatched = merges[0]
        self.fused.kept = merges[len(self.methods)] if self.matchings else unmatched
        starts = [unmatched, *([self.fused.kept] if self.fused.kept is not unmatched else [])]
        if self.correct:
            starts = [self._correct(candidate) for candidate in starts]
            merges += starts
        if self.polish is not None:
            merges += [self._polish(candidate) for candidate in starts]
        self.fused.kept = merges[-1] if self.correct or self.polish is not None else self.fused.kept
        self.test_only([*ends, *merges, *([self.ensemble_of_all()] if self.ensemble else [])])
        return self.fused

    def match(self, name: str) -> Matched:
        """Match all end models by one of the matchings; done once.

        Raises:
            InputError: data is needed and there is none, or a function changed.
        """
        if name not in self.fused.matched:
            start = time.perf_counter()
            models = list(self.end_models)
            recipe = self.matchings[name]
            alignments = self.align(models, recipe)
            twins = [alignment.apply(model) for alignment, model in zip(alignments, models, strict=True)]
            seconds = time.perf_counter() - start
            checks = [
                check_preservation(model, twin, alignment)
                for model, twin, alignment in zip(models, twins, alignments, strict=True)
            ]
            self.fused.matched[name] = Matched(alignments, twins, checks, seconds)
            self.fused.distances += self._distances(name)
        return self.fused.matched[name]

    def merge(self, method: str, matching: str) -> Candidate:
        """Merge the end models, or their matched twins, by one of the methods.

        Args:
            method: one of ``methods``.
            matching: one of ``matchings``, or ``none``.

        Raises:
            InputError: something that the method needs is missing.
        """
        models: list[nn.Module] = list(self.end_models)
        origins: list[tuple[nn.Module, Alignment] | None] = [None] * len(models)
        seconds = 0.0
        if matching != UNMATCHED:
            matched = self.match(matching)
            origins = list(zip(models, matched.alignments, strict=True))
            models, seconds = list(matched.twins), matched.seconds
        start = time.perf_counter()
        statistics = [
            self.statistics_of(index, model, self.needs[method], origin)
            for index, (model, origin) in enumerate(zip(models, origins, strict=True))
        ]
        merged = rounded(self.combine(method, models, statistics, self.base_in(matching)), self.written_dtype)
        took = seconds + time.perf_counter() - start
        return Candidate(self.names, method, matching, merged, took)

    def base_in(self, matching: str) -> dict[str, Tensor] | None:
        """The base model's merged parameters in the basis of one of the matchings; None without a base.

        Task vectors are differences, which mean something in one basis only. The twins' basis is that of the anchor's
        twin, so the anchor's alignment, gauge included, is what brings the base there.

        Args:
            matching: one of ``matchings``, or ``none``.
        """
        if self.base is None:
            return None
        if matching == UNMATCHED:
            return self.states([self.base])[0]
        return self.moved(self.base, self.match(matching).alignments[self.anchor])

    @property
    def uses_base(self) -> bool:
        """Whether there is a base model and a method that needs it."""
        return self.base is not None and any("base" in needs for needs in self.needs.values())

    def task_lengths(self, matching: str) -> list[tuple[float, float]]:
        """Lengths of the end models' task vectors as the models come, and in the basis of one of the matchings.

        Args:
            matching: one of ``matchings``.

        Raises:
            InputError: there is no base.
        """
        base, moved = self.base_in(UNMATCHED), self.base_in(matching)
        if base is None or moved is None:
            raise InputError("task vectors need the base model that all were fine-tuned from; expected one")
        pairs = zip(self.states(list(self.end_models)), self.states(list(self.match(matching).twins)), strict=True)
        return [(parameter_distance(end, base), parameter_distance(twin, moved)) for end, twin in pairs]

    # --- what differs where the models' heads do ---------------------------------------------------------------------

    def refuse_options(self) -> None:
        """Refuse what these heads rule out, before any work.

        Raises:
            InputError: a matching, method or option that compares what the merge and its end models compute, where
                their heads do not let it.
        """

    def describe(self, models: Mapping[str, nn.Module]) -> Blueprint:
        """The blueprint of what is merged.

        Raises:
            InputError: models that do not fit each other.
        """
        return common_blueprint(models)

    def states(self, models: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
        """The parameters of each model that are merged."""
        return [model.state_dict() for model in models]

    def describe_base(self, base: nn.Module) -> nn.Module:
        """The base model, once it is known to fit the end models.

        Raises:
            InputError: it does not.
        """
        common_blueprint({self.names[0]: self.end_models[0], "the base model": base})
        return base.eval()

    def moved(self, model: nn.Module, alignment: Alignment) -> dict[str, Tensor]:
        """The merged parameters of a model in another basis."""
        return alignment.apply(model.state_dict())

    def gauges(self, models: Sequence[nn.Module], recipe: Recipe) -> list[Alignment]:
        """What brings each model into the gauge of a recipe, and no model nearer to another."""
        states = [model.state_dict() for model in models]
        return gauged(states, self.blueprint, recipe.weights)[1]

    def align(self, models: Sequence[nn.Module], recipe: Recipe) -> list[Alignment]:
        """An alignment for each model."""
        return align_models(models, self.blueprint, recipe, self.anchor, self.inputs, self.trainer_factory, self.known)

    def combine(
        self,
        method: str,
        models: Sequence[nn.Module],
        statistics: Sequence[Mapping[str, Statistics]],
        base: Mapping[str, Tensor] | None,
    ) -> nn.Module:
        """The merge of models, statistics and a base that share a basis."""
        return with_state(models[self.anchor], self.merged_state(method, models, statistics, base))

    def merged_state(
        self,
        method: str,
        models: Sequence[nn.Module],
        statistics: Sequence[Mapping[str, Statistics]],
        base: Mapping[str, Tensor] | None,
    ) -> dict[str, Tensor]:
        """The merge's parameters."""
        held_out = self.inputs is not None and self.inputs.held_out
        return merge_states(
            self.states(models),
            method,
            self.weights,
            blueprint=self.blueprint,
            statistics=statistics if any(statistics) else (),
            base=base,
            score=self._score if held_out else None,
            seed=self.seed,
            **self.methods[method],
        )

    def polished(self, model: nn.Module, options: PolishOptions) -> nn.Module:
        """A merge after a short distillation."""
        assert self.inputs is not None
        batches = self.inputs.shared if self.inputs.is_shared else list(self.inputs.own)
        factory = self.trainer_factory
        trainer = None if factory is None else factory("polishing", max_steps=options.steps)
        return polish(model, list(self.end_models), batches, options, trainer, self.known)

    def statistics_of(
        self, index: int, model: nn.Module, needs: Sequence[str], origin: tuple[nn.Module, Alignment] | None
    ) -> dict[str, Statistics]:
        """The statistics that a method needs of one model, in that model's basis.

        Args:
            index: the model's place.
            model: an end model or its twin.
            needs: of the method.
            origin: for a twin, its end model and the alignment.
        """
        return self.store.of(index, model, [need for need in needs if need in STATISTICS], origin)

    def ensemble_of_all(self) -> Candidate:
        """The ensemble of all end models, an upper reference that is no merge."""
        return Candidate(self.names, ENSEMBLE, NO_MATCHING, Ensemble(list(self.end_models), self.weights))

    def _score(self, state: Mapping[str, Tensor]) -> float:
        """How good a merged state is on inputs that were held out; higher is better."""
        assert self.inputs is not None
        return score_of(with_state(self.end_models[self.anchor], state), self.inputs.held_out)

    def _polish(self, candidate: Candidate) -> Candidate:
        assert self.polish is not None
        start = time.perf_counter()
        model = rounded(self.polished(candidate.model, self.polish), self.written_dtype)
        took = (candidate.seconds or 0.0) + time.perf_counter() - start
        return replace(candidate, method=f"{candidate.method}, polished", model=model, seconds=took)

    def _correct(self, candidate: Candidate) -> Candidate:
        """A merge whose activations have the end models' mean and spread again."""
        assert self.inputs is not None
        start = time.perf_counter()
        twins = self.end_models if candidate.matching == UNMATCHED else self.match(candidate.matching).twins
        batches = list(itertools.islice(self.inputs.shared, CORRECTION_BATCHES))
        model = rounded(correct(candidate.model, list(twins), batches, self.weights), self.written_dtype)
        took = (candidate.seconds or 0.0) + time.perf_counter() - start
        return replace(candidate, method=f"{candidate.method}, corrected", model=model, seconds=took)

    def _distances(self, matching: str) -> list[Distance]:
        """Distances to the anchor before and after a matching, both in its gauge; and as the models come."""
        recipe, anchor, models = self.matchings[matching], self.anchor, list(self.end_models)
        ends, twins = self.states(models), self.states(list(self.fused.matched[matching].twins))
        gauges = self.gauges(models, recipe) if recipe.gauge else []
        gauged = [self.moved(model, gauge) for model, gauge in zip(models, gauges, strict=False)] or ends
        found = []
        for index, name in enumerate(self.names):
            if index != anchor:
                given, before, after = (
                    distance_by_space(states[index], states[anchor], self.blueprint) for states in (ends, gauged, twins)
                )
                found += [
                    Distance(
                        name,
                        self.names[anchor],
                        matching,
                        *place,
                        before[place],
                        value,
                        given[place] if recipe.gauge else None,
                    )
                    for place, value in after.items()
                ]
        return found

    def _named(self) -> list[tuple[str, nn.Module]]:
        return list(zip(self.names, self.end_models, strict=True))
