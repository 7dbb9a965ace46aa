"""Steps after a merge: a correction of its activations, and polish."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fusionlab.batch_norm import measured_on, remeasured
from fusionlab.dtypes import rounded
from fusionlab.evaluation.rows import UNMATCHED
from fusionlab.fusion.heads import TaskModels
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate
from fusionlab.inputs import Inputs
from fusionlab.merging.correction import correct
from fusionlab.models import with_state
from fusionlab.polish import PolishOptions, polished
from fusionlab.search import Settings, Space
from fusionlab.stages import Stages


def finished(
    plan: FusionPlan,
    merges: Sequence[Candidate],
    models: Callable[[str], Sequence[nn.Module]],
    end_models: Sequence[nn.Module],
    inputs: Inputs | None,
    weights: Sequence[float],
    known: Sequence[Tensor] | None,
) -> Stages[list[Candidate]]:
    """Some merges corrected and polished as a plan says; each step starts from the one before.

    Args:
        plan: which steps.
        merges: to start from.
        models: gives the models that a matching's merges were made of: end models, or their twins.
        end_models: what polish learns from.
        inputs: to measure and learn on.
        weights: of the models, by which they teach in a polish of a merge without settings of its own.
        known: for each end model which labels it knows; all if None.
    """
    made: list[Candidate] = []
    if plan.correct:
        merges = [corrected(one, models(one.matching), inputs, plan.dtype) for one in merges]
        made += merges
    if plan.polish is not None:
        for one in merges:
            shares = weights if one.settings is None else one.settings.usual_shares
            made += [(yield from polishing(one, end_models, inputs, plan.polish, shares, known, plan.dtype))]
    return made


def refuse_correction(plan: FusionPlan, weights: Sequence[float], space: Space | None) -> None:
    """Refuse to correct a merge by one weight for each model where its parameters have several.

    Args:
        plan: of the fusion.
        weights: of the models.
        space: of settings that are searched; None for none.

    Raises:
        InputError: such a merge is the one that is kept.
    """
    if not plan.correct:
        return
    values = dict(next(iter(plan.methods.values())))
    if space is not None and space.has_start:
        values = space.settings(space.start()).hyperparameters
    Settings(values, list(weights)).shares()


def corrected(
    merge: Candidate,
    models: Sequence[nn.Module],
    inputs: Inputs | None,
    dtype: torch.dtype | None,
) -> Candidate:
    """A merge whose activations have the mean and spread again that they have in the models it was made of.

    Args:
        merge: of `models`.
        models: end models, or their twins.
        inputs: to measure on.
        dtype: to round to; none if None.
    """
    assert inputs is not None
    assert merge.settings is not None
    start, shares = time.perf_counter(), merge.settings.shares()
    model = rounded(correct(merge.model, list(models), measured_on(inputs.shared), shares), dtype)
    return _after(merge, "corrected", model, start)


def normalised(merged: nn.Module, inputs: Inputs) -> nn.Module:
    """A merge whose BatchNorm layers have the running statistics of its own activations; others as they are.

    Args:
        merged: a model, or one for each task, which then sees its own inputs.
        inputs: to measure on.
    """
    if isinstance(merged, TaskModels):
        return TaskModels([remeasured(task, own) for task, own in zip(merged.tasks, inputs.own, strict=True)])
    return remeasured(merged, inputs.shared)


def polishing(
    merge: Candidate,
    end_models: Sequence[nn.Module],
    inputs: Inputs | None,
    options: PolishOptions,
    weights: Sequence[float],
    known: Sequence[Tensor] | None,
    dtype: torch.dtype | None,
) -> Stages[Candidate]:
    """A merge after a short distillation of its end models' outputs.

    Args:
        merge: to start from.
        end_models: the teachers.
        inputs: to learn on.
        options: how.
        weights: how much each end model teaches, summing to 1.
        known: for each end model which labels it knows; all if None.
        dtype: to round to; none if None.
    """
    assert inputs is not None
    start = time.perf_counter()
    batches = inputs.shared if inputs.is_shared else list(inputs.own)
    options = inputs.suited(options)
    label = f"polishing {merge.method}{'' if merge.matching == UNMATCHED else f', {merge.matching}'}"
    if isinstance(merge.model, TaskModels):
        # Tasks have no outputs in common, so each learns from its own end model, and all of them move one body.
        student, own = merge.model.sharing(), list(inputs.own)
        answering = TaskModels.answering
        found = yield from polished(student, end_models, own, options, known, label, answering, weights)
        model: nn.Module = with_state(merge.model, found.state_dict())
    else:
        model = yield from polished(merge.model, end_models, batches, options, known, label, weights=weights)
    return _after(merge, "polished", rounded(model, dtype), start)


def _after(merge: Candidate, step: str, model: nn.Module, start: float) -> Candidate:
    took = (merge.seconds or 0.0) + time.perf_counter() - start
    return replace(merge, method=f"{merge.method}, {step}", model=model, seconds=took)
