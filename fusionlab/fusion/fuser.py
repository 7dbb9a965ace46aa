"""The main job: match, check, merge, correct, polish."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from torch import nn

from fusionlab.batch_norm import batch_norms
from fusionlab.dtypes import rounded, widened
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.rows import END_MODEL, ENSEMBLE, NO_MATCHING, UNMATCHED
from fusionlab.fusion.base_model import BaseModel
from fusionlab.fusion.finishing import finished, normalised, refuse_correction
from fusionlab.fusion.heads import STRATEGIES
from fusionlab.fusion.matchings import Matchings
from fusionlab.fusion.methods import Merging, refuse_methods
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate, Fused, Matched
from fusionlab.fusion.searching import Search, refuse_search, space_of
from fusionlab.inputs import Inputs
from fusionlab.matching.align import choose_anchor
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method
from fusionlab.merging.method import KINDS
from fusionlab.merging.settling import settling
from fusionlab.search import SearchOptions, Settings, Space
from fusionlab.stages import Stages
from fusionlab.statistics import Statistics
from fusionlab.statistics.store import StatisticsStore
from fusionlab.symmetry import Alignment


class Fuser:
    """Matches and merges end models.

    What looks at data is a stage (none, for matching by weights and simple merging), and all that may need one is a
    generator of stages: ``run(fuser.fuse(), trainer)`` runs them by a Trainer (`fusionlab.stages`). Alignments and
    statistics are found once.

    Args:
        models: end models by name, all of one architecture; not modified.
        plan: what is made of them.
        inputs: what matching and merging may look at; where matching or polishing need some and there is none,
            synthetic ones are drawn. Merging never looks at synthetic ones unless they are given.
        statistics: of the end models, gathered before, for each.
        base: the model that all were fine-tuned from, for methods that need it; merges of twins use it in the twins'
            basis, which is the anchor's, gauge included.

    Raises:
        InputError: fewer than two models, models that do not fit each other, or a method or option that does not exist.
    """

    store_class = StatisticsStore  # where statistics are kept; how they reach twins is its own

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        plan: FusionPlan,
        inputs: Inputs | None = None,
        statistics: Sequence[Mapping[str, Statistics]] = (),
        base: nn.Module | None = None,
    ) -> None:
        self.plan = plan
        self._given = inputs
        self.heads = STRATEGIES[plan.heads](models)
        # In one type, as a merge in the narrower of two would round the numbers of the other.
        stored = self.heads.models
        self.heads.models = widened(stored, plan.dtype)
        self.names = tuple(stored)
        self.needs = {name: find_method(name).requires(**values) for name, values in plan.methods.items()}
        is_needed = bool(plan.matchings) or any("blueprint" in needs for needs in self.needs.values())
        self.blueprint = self.heads.described(is_needed)
        self.end_models = [model.eval() for model in self.heads.models.values()]
        self.anchor = choose_anchor(self.heads.states(self.end_models), plan.anchor)
        for recipe in plan.matchings.values():
            recipe.refuse(self.blueprint)
        self.weights = merge_weights(plan.weights, len(models))
        self.heads.refuse(plan, self.needs)
        self.fused = Fused(self.anchor)
        self.base = None if base is None else BaseModel(base, self.heads, self.end_models, self.fused)
        before = None if self.base is None else self.base.state(UNMATCHED)
        refuse_methods(plan.methods, self.heads.states(self.end_models), self.weights, before)
        self._space = space_of(plan, self.heads.states(self.end_models))
        refuse_correction(plan, self.weights, self._space)
        if inputs is not None:  # else they may come yet
            refuse_search(plan.search, inputs, self.end_models)
        settings = {"seed": plan.seed, "labels": plan.methods.get("fisher", {}).get("labels")}
        self.store = self.store_class(inputs, statistics, settings)
        for name, model in self.heads.models.items():
            if model is not stored[name]:
                self.store.also_of(stored[name].state_dict(), model.state_dict())
        self.matchings = Matchings(
            self.heads, self.end_models, self.blueprint, plan.matchings, self.fused, lambda: self.inputs
        )
        self._gathered: dict[tuple[str, str], float] = {}  # seconds
        self._merges: dict[tuple[str, str], Candidate] = {}
        self._finished: list[Candidate] | None = None

    @cached_property
    def inputs(self) -> Inputs | None:
        """The inputs that were given, or synthetic ones where some are needed."""
        if self._given is None and self.plan.needs_inputs:
            return Inputs.synthetic(self.end_models, seed=self.plan.seed)
        return self._given

    @property
    def looks_at_data(self) -> bool:
        """True if there may be stages."""
        gathers = any(self.kinds_of(method) for method in self.needs)
        learns = self.plan.polish is not None or self._space is not None
        return gathers or learns or any(r.needs_inputs for r in self.plan.matchings.values())

    @property
    def looks_at_inputs(self) -> bool:
        """True if inputs were given and something looks at them: a stage, a correction, BatchNorm, a choice."""
        runs = any({"score", "inputs"} & set(needs) for needs in self.needs.values())
        return self._given is not None and (self.looks_at_data or self.plan.correct or runs or self._has_statistics)

    def prepare(self) -> Stages[None]:
        """Do all that looks at data, and of the rest only what that needs; `fuse` then has no stages.

        Raises:
            InputError: data is needed and there is none, or a matching that changed a function.
        """
        plan = self.plan
        refuse_search(plan.search, self._given, self.end_models)
        for name, recipe in plan.matchings.items():
            if recipe.needs_inputs:
                yield from self.matchings.align(name)
        for matching in (UNMATCHED, *plan.matchings):
            for method in plan.methods:
                if self.kinds_of(method):
                    yield from self._gather(method, matching)
        if plan.polish is not None or self._space is not None:
            yield from self._finish()

    def fuse(self) -> Stages[Fused]:
        """Match by every matching, merge by every method, unmatched too; what is tested is all of it.

        Raises:
            InputError: data is needed and there is none, or a matching that changed a function.
        """
        plan, merges = self.plan, list[Candidate]()
        refuse_search(plan.search, self._given, self.end_models)
        for matching in (UNMATCHED, *plan.matchings):
            for method in plan.methods:
                merges += [(yield from self._merge_once(method, matching))]
        finished = yield from self._finish()
        merges += finished
        kept = merges[len(plan.methods)] if plan.matchings else merges[0]
        self.fused.kept = merges[-1] if finished else kept
        self.fused.candidates = [*self.ends(), *merges, *([self.ensemble_of_all()] if plan.ensemble else [])]
        return self.fused

    def match(self, name: str) -> Stages[Matched]:
        """Match all end models by one of the matchings; done once.

        Raises:
            InputError: data is needed and there is none, or a function changed.
        """
        return self.matchings.match(name)

    def merge(self, method: str, matching: str) -> Stages[Candidate]:
        """Merge the end models, or their matched twins, by one of the methods.

        Args:
            method: one of the plan's methods.
            matching: one of the plan's matchings, or ``none``.

        Raises:
            InputError: something that the method needs is missing.
        """
        statistics = yield from self._gather(method, matching)
        return self._merged(method, matching, statistics, Settings(dict(self.plan.methods[method]), self.weights))

    def _merged(
        self, method: str, matching: str, statistics: Sequence[Mapping[str, Statistics]], settings: Settings
    ) -> Candidate:
        """The merge by some settings; what it was matched by and what it looks at was found before."""
        start, models = time.perf_counter(), self._models(matching)
        seconds = self._gathered[method, matching]
        seconds += 0 if matching == UNMATCHED else self.fused.matched[matching].seconds
        base = None if self.base is None else self.base.state(matching)
        known = self.plan.seed, self.blueprint, base, models, self.end_models[self.anchor], self._given, self.inputs
        merging = Merging(self.names, method, settings, *known)
        merged = self.heads.combine(merging.state, models, statistics, settings.usual_shares, self.anchor)
        if self._given is not None:
            merged = normalised(merged, self._given)
        merged = rounded(merged, self.plan.dtype)
        seconds += time.perf_counter() - start
        return Candidate(self.names, method, matching, merged, seconds, merging.told, settings)

    def settle(self, matching: str, index: int) -> Callable[[nn.Module, float], None] | None:
        """The function that brings a point between the anchor and a model, as the plan says, to activations of its own.

        With inputs, BatchNorm layers get the running statistics of the point, or, corrected, every unit the mean and
        spread that it has between the two models.

        Args:
            matching: one of the plan's matchings, which was matched by, or ``none``.
            index: of the model at position 1.

        Returns:
            A function that changes the model at a position in place; None where there is nothing to change.
        """
        start, end = (self._models(matching)[place] for place in (self.anchor, index))
        inputs = self.inputs if self.plan.correct else self._given
        return None if inputs is None else settling(start, end, inputs.shared, self.plan.correct)

    @property
    def averaged(self) -> bool:
        """True if the models have BatchNorm, and no data was given to measure its running statistics on."""
        return self._given is None and self._has_statistics

    @property
    def _has_statistics(self) -> bool:
        return any(bool(batch_norms(model)) for model in self.end_models)

    @property
    def needs_base(self) -> bool:
        """True if one of the methods needs a base model."""
        return any("base" in needs for needs in self.needs.values())

    def kinds_of(self, method: str) -> list[str]:
        """The kinds of statistics that one of the methods needs of every model."""
        return [need for need in self.needs[method] if need in KINDS]

    def ends(self) -> list[Candidate]:
        """The end models."""
        return [Candidate((name,), END_MODEL, NO_MATCHING, model) for name, model in self.heads.models.items()]

    def ensemble_of_all(self) -> Candidate:
        """The ensemble of all end models, an upper reference that is no merge."""
        return Candidate(self.names, ENSEMBLE, NO_MATCHING, Ensemble(self.end_models, self.weights))

    def _merge_once(self, method: str, matching: str) -> Stages[Candidate]:
        """A merge that is tested, and that others may start from."""
        if (method, matching) not in self._merges:
            self._merges[method, matching] = yield from self.merge(method, matching)
            self.matchings.place.rest(self._merges[method, matching].model)
        return self._merges[method, matching]

    def _gather(self, method: str, matching: str) -> Stages[list[dict[str, Statistics]]]:
        """The statistics that a method needs of every model in the basis of a matching; the first time is timed."""
        models: Sequence[nn.Module] = self.end_models
        origins: list[tuple[nn.Module, Alignment] | None] = [None] * len(models)
        if matching != UNMATCHED:
            matched = yield from self.match(matching)
            origins = list(zip(models, matched.alignments, strict=True))
            models = matched.twins
        start = time.perf_counter()
        found = []
        for index, (model, origin) in enumerate(zip(models, origins, strict=True)):
            found += [(yield from self.store.of(index, model, self.kinds_of(method), origin))]
        self._gathered.setdefault((method, matching), time.perf_counter() - start)
        return found

    def _models(self, matching: str) -> Sequence[nn.Module]:
        """The end models, or their twins of one of the matchings, which was matched by."""
        return self.end_models if matching == UNMATCHED else self.fused.matched[matching].twins

    def _finish(self) -> Stages[list[Candidate]]:
        """The merge to keep and the unmatched one beside it, with what the plan says is done to them; done once."""
        if self._finished is None:
            plan, starts = self.plan, list[Candidate]()
            method, matchings = next(iter(plan.methods)), (UNMATCHED, *itertools.islice(self.plan.matchings, 1))
            if plan.correct or plan.polish is not None or self._space is not None:
                for matching in matchings:
                    starts += [(yield from self._merge_once(method, matching))]
            if self._space is not None:
                starts = yield from self._search(method, matchings, self._space)
            made = yield from finished(
                plan, starts, self._models, self.end_models, self.inputs, self.weights, self.heads.known
            )
            self._finished = [*(starts if self._space is not None else []), *made]
            self.matchings.place.rest(*(one.model for one in made))
        return self._finished

    def _search(self, method: str, matchings: Sequence[str], space: Space) -> Stages[list[Candidate]]:
        """The merges of all matchings by the settings that suit the last of them, which is kept, best."""
        statistics = {}
        for matching in matchings:
            statistics[matching] = yield from self._gather(method, matching)
        start, kept = time.perf_counter(), matchings[-1]
        given = self._given if "inputs" in self.needs[method] or self._has_statistics else None
        parts = [
            [[model.state_dict() for model in self._models(kept)], statistics[kept]],
            [self.base and self.base.state(kept), given and [given.own, given.shared]],
            [self.anchor, self.plan.heads, str(self.plan.dtype), self.plan.seed],
        ]
        search = Search(space, self.plan.search or SearchOptions(), self.ends(), self.heads, self.inputs, parts)
        self.fused.search = yield from search.run(lambda given: self._merged(method, kept, statistics[kept], given))
        best, took = self.fused.search.best.settings, time.perf_counter() - start
        found = [self._merged(method, matching, statistics[matching], best) for matching in matchings]
        return [replace(one, method=f"{method}, searched", seconds=(one.seconds or 0.0) + took) for one in found]
