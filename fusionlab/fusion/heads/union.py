"""Heads of classifiers whose labels differ, joined by label name: a label is merged from the models that know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation.results import END_MODEL
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import task_of
from fusionlab.forward import IGNORED, LABELS
from fusionlab.fusion.heads.labels import merge_heads, with_labels, with_union_heads
from fusionlab.fusion.heads.merged import MergedHeads
from fusionlab.fusion.heads.of_base import FittedBase
from fusionlab.fusion.heads.refusals import refuse_scoring
from fusionlab.fusion.heads.strategy import MergeStates, StatisticsByKind
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.models import with_state

# No label that a model does not know may win.
NEVER = -1e4


class UnionHeads(MergedHeads):
    """Every model gets a head of all labels; whole models are matched and merged, rows of labels apart.

    Attributes:
        union: the end models with joined heads, the labels, and which model knows which.
    """

    takes_any_order = True

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self.union = with_union_heads(list(models.values()))
        super().__init__(dict(zip(models, self.union.models, strict=True)))
        self.known = self.union.known
        self._silenced: dict[tuple[str, ...], nn.Module] = {}

    def refuse(self, plan: FusionPlan, needs: Mapping[str, Sequence[str]]) -> None:
        """Refuse what goes by the data's own numbers of labels, and an ensemble, in which labels unknown to one vote.

        Raises:
            InputError: a method that scores merges or looks at labels, a matching that does, or an ensemble.
        """
        refuse_scoring(needs, "union")
        those = "the numbers of the data's labels, which are not those of joined heads; expected heads to be merged, or"
        for method, values in plan.methods.items():
            if values.get("labels") == "empirical":
                raise InputError(f"method {method!r} goes by {those} labels 'model'")
        for name, recipe in plan.matchings.items():
            if recipe.refine is not None and recipe.refine.target == "labels":
                raise InputError(f"matching {name!r} goes by {those} another target")
        if plan.ensemble:
            raise InputError("an ensemble needs one head for all models; expected heads to be merged, or no ensemble")

    def base(self, base: nn.Module) -> FittedBase:
        """The base model with a head of all labels, so that it fits; a merge takes no label's row from it."""
        is_classifier = type(base) is type(self.union.models[0])
        return super().base(with_labels(base, self.union.labels) if is_classifier else base)

    def combine(
        self,
        merge: MergeStates,
        models: Sequence[nn.Module],
        statistics: Sequence[StatisticsByKind],
        weights: Sequence[float],
        anchor: int,
    ) -> nn.Module:
        """The merge, each label's row from those that know it."""
        return merge_heads(super().combine(merge, models, statistics, weights, anchor), models, self.union, weights)

    def scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        """The model; an end model never answers with a label that it does not know."""
        if candidate.method != END_MODEL:
            return candidate.model
        if candidate.models not in self._silenced:
            index = list(self.models).index(candidate.models[0])
            self._silenced[candidate.models] = self._without_unknown(candidate.model, self.union.known[index])
        # Where the candidate is by now, and in the type that it computes in.
        return self._silenced[candidate.models].to(next(candidate.model.parameters()))

    def scores(self, model: nn.Module, test_set: TestSet) -> Scores:
        """Those of the joined labels, which batches have the places of."""
        named = test_set if test_set.class_names is None else replace(test_set, class_names=self.union.labels)
        return named.scores(model)

    def labels(self, batch: Mapping[str, Tensor], test_set: TestSet) -> Mapping[str, Tensor]:
        """A batch whose labels are places among the joined ones, by name."""
        if test_set.class_names is None or tuple(test_set.class_names) == self.union.labels:
            return batch
        if missing := [name for name in test_set.class_names if name not in self.union.labels]:
            raise InputError(f"no end model knows the label {missing[0]!r}; expected some of {self.union.labels}")
        places = torch.tensor([self.union.labels.index(name) for name in test_set.class_names])
        labels, places = batch[LABELS], places.to(batch[LABELS].device)
        task = test_set.task or task_of(self.union.models[0])
        if task == "multilabel":
            # A label that the data do not have is neither right nor wrong.
            unknown = labels.new_full((len(labels), len(self.union.labels)), IGNORED)
            return {**batch, LABELS: unknown.index_copy(1, places, labels)}
        return {**batch, LABELS: torch.where(labels >= 0, places[labels.clamp(min=0)], labels)}

    def _without_unknown(self, model: nn.Module, known: Tensor) -> nn.Module:
        silenced = with_state(model, model.state_dict())
        for layer in map(silenced.get_submodule, self.union.layers):
            assert isinstance(layer, nn.Linear)
            # Where there is no bias, a row of zeros answers 0, which is more than many a known label has.
            bias = layer.weight.new_zeros(len(known)) if layer.bias is None else layer.bias.detach()
            layer.bias = nn.Parameter(torch.where(known.to(bias.device), bias, NEVER))
        return silenced
