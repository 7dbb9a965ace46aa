"""The search of a merge's settings by scores on validation data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from torch import nn

from fusionlab.errors import InputError
from fusionlab.evaluation.metrics import is_fraction, lower_is_better
from fusionlab.evaluation.wording import listing, metric_label
from fusionlab.fusion.digests import digest_of
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.fusion.scoring import ByMetric, Scoring, validation_of
from fusionlab.inputs import Inputs
from fusionlab.search import WEIGHTS, Found, SearchOptions, Settings, Space, Trials, refuse_journal
from fusionlab.stages import Stages, result_of
from fusionlab.types import State


@dataclass(frozen=True)
class Search:
    """The search of the settings of one merge.

    Attributes:
        space: what is searched.
        options: how.
        ends: the end models.
        heads: which model of a candidate answers on a set.
        inputs: whose validation data are looked at.
        merged: all that the merges of trials are made of beside their settings, for `digest_of`; it tells searches that
            share a journal apart.
    """

    space: Space
    options: SearchOptions
    ends: Sequence[Candidate]
    heads: HeadStrategy
    inputs: Inputs | None
    merged: Sequence[Any] = ()

    def run(self, merge: Callable[[Settings], Candidate]) -> Stages[Found]:
        """The trials; each is a merge, and a pass over the validation data.

        The score of a merge is its metric as a share of the best end model's, averaged over the validation sets, where
        all metrics are fractions of which more is better; else the mean of the metrics, with the sign changed where
        less is.

        Args:
            merge: makes the merge of some settings.

        Raises:
            InputError: no validation data, a metric that they are not scored by, or no settings with a finite score.
        """
        space, options, start = self.space, self.options, time.perf_counter()
        sets, batches = validation_of(self.inputs)
        trials = Trials(space, options, self._digest())
        scoring = Scoring("search: the end models", self.ends, self.heads, sets, batches)
        rule = Rule(sets, (yield from result_of(scoring)), options.metric)
        while (settings := trials.ask()) is not None:
            begin, label = time.perf_counter(), f"search: {len(trials.done) + 1} of {options.trials}"
            try:
                candidate = merge(settings)
            except InputError as error:
                # A method may refuse some combinations of numbers that are each in their ranges.
                trials.tell(math.nan, refusal=str(error))
                continue
            (found,) = yield from result_of(Scoring(label, [candidate], self.heads, sets, batches))
            trials.tell(rule.score(found), rule.values(found), time.perf_counter() - begin)
        names = listing([f"{metric_label(rule.metrics[one.name])} on {one.name}" for one in sets])
        best, first = trials.found().best, trials.done[0]
        before = f", where the settings as given have {rule.told(first.score)}" if math.isfinite(first.score) else ""
        return trials.found(
            f"{space.method}: {_words(best.settings, space)} is the best of {len(trials.done)} merges that a search "
            f"tried ({options.sampler}, seed {options.seed}, {time.perf_counter() - start:.0f} s), by {names} of the "
            f"validation split, on which no score here is measured: {rule.told(best.score)}{before}."
        )

    def _digest(self) -> str:
        """A digest of what is merged and of the labelled data that merges are scored on; only a journal asks for it."""
        if self.options.journal is None:
            return ""
        sets, batches = validation_of(self.inputs)
        scored = [(one.name, one.owner, one.task, one.class_names, one.options) for one in sets]
        return digest_of(self.merged, [end.model.state_dict() for end in self.ends], scored, batches)


def space_of(plan: FusionPlan, states: Sequence[State]) -> Space | None:
    """The settings that a plan searches; None where it searches none.

    Args:
        plan: of the fusion.
        states: what is merged of each model.

    Raises:
        InputError: what `Space.of` refuses.
    """
    if plan.search is None:
        return None
    method, given = next(iter(plan.methods.items()))
    return Space.of(method, len(states), plan.search, given, plan.weights, list(states[0]))


def refuse_search(options: SearchOptions | None, inputs: Inputs | None, models: Sequence[nn.Module]) -> None:
    """Refuse a search before any work.

    Args:
        options: of the search; None for none.
        inputs: whose validation data it looks at.
        models: the end models, in order.

    Raises:
        InputError: no validation data, a metric that they are not scored by, or a journal that cannot be read.
    """
    if options is None:
        return
    refuse_journal(options.journal)
    for one in validation_of(inputs)[0]:
        if options.metric is not None:
            _refuse_metric(options.metric, one, ["loss", *one.scores(models[one.owner or 0]).metrics])


def refuse_journal_of_several(options: SearchOptions | None, processes: int) -> None:
    """Refuse a journal that several processes would write.

    Args:
        options: of the search; None for none.
        processes: of the fit.

    Raises:
        InputError: there is a journal, and more than one process.
    """
    if processes > 1 and options is not None and options.journal is not None:
        raise InputError(
            f"search journal is {options.journal}, which one process writes, and there are {processes}; expected one "
            f"device, or no journal"
        )


def refuse_journal_with_checkpoint(options: SearchOptions | None) -> None:
    """Refuse a journal where a fit goes on from a checkpoint, whose stages are counted from the first trial.

    Args:
        options: of the search; None for none.

    Raises:
        InputError: there is a journal.
    """
    if options is not None and options.journal is not None:
        raise InputError(
            f"search journal is {options.journal}, and the fit goes on from a checkpoint, which holds the trials too; "
            f"expected one of the two"
        )


def _refuse_metric(metric: str, test_set: TestSet, known: Sequence[str]) -> None:
    if metric not in known:
        raise InputError(f"search metric is {metric!r}; expected one that {test_set.name} has: {', '.join(known)}")


class Rule:
    """The score of a merge, from its metrics on the validation sets and those of the end models.

    Args:
        sets: the validation sets.
        ends: the metrics of each end model.
        metric: the metric of all sets; each set's main one if None.

    Raises:
        InputError: a metric that a set is not scored by.
    """

    def __init__(self, sets: Sequence[TestSet], ends: Sequence[ByMetric], metric: str | None) -> None:
        self.metrics: dict[str, str] = {}
        self._own: dict[str, float] = {}
        for one in sets:
            found = [of_end[one.name] for of_end in ends if one.name in of_end]
            known = list(found[0])
            if metric is not None:
                _refuse_metric(metric, one, known)
            # The loss comes first, and then the main metric.
            self.metrics[one.name] = metric or (known[1] if len(known) > 1 else known[0])
            sign = -1 if lower_is_better(self.metrics[one.name]) else 1
            self._own[one.name] = sign * max(sign * values[self.metrics[one.name]] for values in found)
        fair = all(is_fraction(name) and not lower_is_better(name) for name in self.metrics.values())
        self.is_share = fair and all(value > 0 for value in self._own.values())

    def values(self, found: ByMetric) -> dict[str, float]:
        """By set, the metric that counts."""
        return {name: found[name][metric] for name, metric in self.metrics.items()}

    def score(self, found: ByMetric) -> float:
        """The number that is searched for, higher is better."""
        values = self.values(found)
        if self.is_share:
            return fmean(value / self._own[name] for name, value in values.items())
        return fmean(-value if lower_is_better(self.metrics[name]) else value for name, value in values.items())

    def told(self, score: float) -> str:
        """A score in words."""
        return f"{100 * score:.1f} % of the best end models' scores" if self.is_share else f"{score:.4g}"


def _words(settings: Settings, space: Space) -> str:
    """The settings for the reader: numbers to three digits, and what differs by layer by name alone."""
    parts = []
    for name, value in settings.hyperparameters.items():
        short = f"{value:.3g}" if isinstance(value, float) else str(value)
        parts.append(f"{name} by groups of layers" if isinstance(value, Mapping) else f"{name} {short}")
    if any(axis.setting == WEIGHTS and axis.band is None for axis in space.axes):
        parts.append(f"weights {', '.join(f'{weight:.3g}' for weight in settings.weights)}")
    return listing(parts)
