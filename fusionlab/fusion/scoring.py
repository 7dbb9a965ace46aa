"""Scores of candidates on validation data, as a stage."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.inputs import Inputs
from fusionlab.stages import Run, Stage

# By test set, its metrics.
ByMetric = dict[str, dict[str, float]]


class Scoring(Stage[list[ByMetric]]):
    """The stage that scores candidates on validation data; every process goes through all of it.

    Args:
        label: see `Stage`.
        candidates: what is scored.
        heads: which model of a candidate answers.
        sets: the validation sets.
        batches: of each, labelled.
    """

    def __init__(
        self,
        label: str,
        candidates: Sequence[Candidate],
        heads: HeadStrategy,
        sets: Sequence[TestSet],
        batches: Sequence[Any],
    ) -> None:
        self.label, self.candidates, self.heads = label, list(candidates), heads
        self.sets, self._batches = list(sets), list(batches)
        self._answering: list[list[tuple[int, nn.Module]]] = []
        self._scores: list[dict[int, Any]] = []

    def begin(self, run: Run) -> None:
        """Copy the candidates to the run's device, in the type that it computes in."""
        self._answering, self._scores = [], []
        for test_set in self.sets:
            found = [(place, self.heads.scored(one, test_set)) for place, one in enumerate(self.candidates)]
            answering = [
                (place, copy.deepcopy(model).eval().to(run.device)) for place, model in found if model is not None
            ]
            for _, model in answering:
                run.trainer.precision_plugin.convert_module(model)
            self._answering.append(answering)
            self._scores.append(
                {place: self.heads.scores(model, test_set).to(run.device) for place, model in answering}
            )

    def batches(self, run: Run) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
        """All batches of all sets, each with the place of its set."""
        for place, batches in enumerate(self._batches):
            for batch in batches:
                yield place, batch

    @torch.no_grad()
    def step(self, run: Run, batch: tuple[int, Mapping[str, Tensor]]) -> None:
        """Score one batch."""
        place, given = batch
        test_set = self.sets[place]
        try:
            known = self.heads.labels(given, test_set)
            for index, model in self._answering[place]:
                self._scores[place][index].update(model, known)
        except InputError as error:
            raise InputError(f"{test_set.name}: {error}") from error

    def finish(self, run: Run) -> list[ByMetric]:
        """For each candidate its metrics by validation set, of those that it answers on."""
        return [
            {
                test_set.name: dict(scores[index].compute())
                for test_set, scores in zip(self.sets, self._scores, strict=True)
                if index in scores
            }
            for index in range(len(self.candidates))
        ]

    def end(self) -> None:
        """Let go of the copies."""
        self._answering, self._scores = [], []

    def pack(self, result: list[ByMetric]) -> Any:
        """The scores as they are."""
        return result

    def unpack(self, packed: Any) -> list[ByMetric]:
        """The scores as they are."""
        found: list[ByMetric] = packed
        return found


def validation_of(inputs: Inputs | None) -> tuple[list[TestSet], list[Any]]:
    """The validation sets of inputs, and the batches of each.

    Args:
        inputs: what merging may look at.

    Raises:
        InputError: there are none.
    """
    if inputs is None or not inputs.held_out or len(inputs.held_out_facts) != len(inputs.held_out):
        raise InputError(
            "search chooses by scores on validation data, and there is none; expected data (--data) with a validation "
            "split, or with rows of training held out for it (--data.val_size 0.2)"
        )
    sets: list[TestSet] = []
    for owner, facts in inputs.held_out_facts:
        taken = [one.name for one in sets]
        name, number = facts.name, 2
        while name in taken:
            name, number = f"{facts.name} {number}", number + 1
        sets.append(TestSet.of(facts, name, owner=owner))
    return sets, list(inputs.held_out)
