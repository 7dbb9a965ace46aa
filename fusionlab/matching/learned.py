"""Learned refinement: gradient descent on alignments, inside the group, until the line between the twins has low loss.

Theus et al., "Generalized linear mode connectivity for transformers" (2025), learn permutations and orthogonal maps on
the loss of a random point between two models. Here every continuous space of the blueprint is learned in a chart of its
own group, permutations are assigned again every few steps where that lowers the loss, and the end models' own outputs
are what is taught: no label is needed. Each twin computes its end model's function at every step, so that the result is
an alignment like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from fusionlab.batch_norm import by_batch
from fusionlab.errors import InputError
from fusionlab.learning.batches import DistillationBatch
from fusionlab.learning.descent import Descent, Mean, share_of_mean
from fusionlab.learning.distillation import distillation_loss, output_of, rows_that_count
from fusionlab.learning.labels_loss import labels_loss
from fusionlab.learning.points import at_point, random_points
from fusionlab.matching.muon import Muon
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.matching.twins import Twins
from fusionlab.models import borrowed
from fusionlab.stages import Run, Stages, result_of
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.stacks import apart

# The weighted sums of the models' parameters, for each of some points.
Mixtures = Callable[[Sequence[Sequence[float]]], Iterable[dict[str, Tensor]]]
# Learning rates of two models and of more, where none is given.
RATES = {"muon": (0.01, 0.005), "adamw": (0.04, 0.02)}


class Refined(NamedTuple):
    """The alignments that a refinement comes to, and how well they do.

    Attributes:
        alignments: one for each model.
        loss: the mean over the last third of the steps that were taken; infinity if none was.
    """

    alignments: list[Alignment]
    loss: float


class Refinement(Descent[Refined]):
    """The stage that refines the alignments of several models together.

    Args:
        models: end models, of one architecture; not modified.
        alignments: one for each, in order, of one blueprint (folded or not): where to start.
        batches: see `Descent`.
        options: how to descend.
        anchor: index of the model whose alignment stays as it is.
        spaces: those to learn; None for all.
        known: for each model which labels it knows, bool of shape ``(classes,)``; None where all know all.
        label: see `Stage`.

    Raises:
        InputError: see `Twins` and `Descent`.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        alignments: Sequence[Alignment],
        batches: Any,
        options: RefineOptions,
        anchor: int = 0,
        spaces: Sequence[Space] | None = None,
        known: Sequence[Tensor] | None = None,
        label: str = "learned matching",
    ) -> None:
        self.options = options
        self.twins = Twins(models, alignments, anchor, spaces, options.general, options.unseen)
        teachers = [borrowed(model).eval().requires_grad_(False) for model in models]
        # What is half way has no running statistics; those of an end model are not even in its twin's basis.
        self.student = by_batch(teachers[0])
        self._losses: list[Tensor] = []
        self._last: Sequence[DistillationBatch] | None = None
        super().__init__(label, self.twins, teachers, batches, options, known, options.target == "outputs")

    def make_optimizer(self) -> tuple[Optimizer, CosineAnnealingLR]:
        """The optimizer, with a cosine to zero. Nothing decays: that would pull the coordinates back to the start."""
        options, twins = self.options, self.twins
        rate = options.learning_rate or RATES[options.optimizer][len(self.teachers) > 2]
        optimizer: Optimizer
        if options.optimizer == "muon":
            optimizer = Muon(list(twins.parameters()), twins.directions(), rate)
        else:
            optimizer = AdamW(twins.parameters(), lr=rate, weight_decay=0.0)
        return optimizer, CosineAnnealingLR(optimizer, options.steps)

    def begin(self, run: Run) -> None:
        """Ask the end models for the targets, where the descent will run."""
        super().begin(run)
        if run.mesh is not None:
            # Of no use whole: a point brings all of them.
            for parameter in self.student.parameters():
                parameter.data = parameter.data.new_empty(0)
        self.student.to(run.device)
        run.trainer.precision_plugin.convert_module(self.student)

    def place(self, run: Run) -> None:
        """Bring the coordinates to where the descent runs, in every process all of them."""
        if run.mesh is not None:
            self.twins.share_out(run.mesh)
        self.twins.start_from(self.twins.start)
        self.twins.to(run.device)
        run.trainer.precision_plugin.convert_module(self.twins)
        self.twins.refresh()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on after the steps that were taken, from the same start."""
        self.twins.start_from(self._unpacked(state["start"]))
        self._losses = list(state["losses"])
        super().restore(state)
        self.twins.refresh()

    def prepare(self, run: Run, batch: Sequence[DistillationBatch]) -> None:
        """Assign hidden units and heads again where it is time to."""
        if self.options.every and self.done and self.done % self.options.every == 0:
            self.assign(run, batch)

    def step(self, run: Run, batch: list[DistillationBatch]) -> Tensor:
        """The loss on one batch of every source."""
        loss = super().step(run, batch)
        self._last = batch if self.done == self.options.steps else None
        self._losses.append(run.total(loss.detach()))
        return loss

    def loss(self, run: Run, batch: Sequence[DistillationBatch]) -> Tensor:
        """The loss at one random point between all models, or at one between the two of every couple.

        The points are those of the present step, however often they are asked for.
        """
        return self._loss_of(run, batch, self.twins.mixtures)

    def _loss_of(self, run: Run, batch: Sequence[DistillationBatch], mixtures: Mixtures) -> Tensor:
        """The loss of the present step, of mixtures of the models as they are now or as they were at the start."""
        options = self.options
        # The zero stands where processes once had draws of their own.
        draw = numpy.random.default_rng((options.seed, 0, self.done))
        points = random_points(len(self.teachers), options.edges, options.concentration, draw)
        # Every couple learns on its own share of the inputs, so that a step costs the same.
        shares = zip(*(source.split(len(points)) for source in batch), strict=False)
        stacks = self.twins.blueprint.stacks
        losses = [
            self.loss_at(run, apart(point, stacks), share)
            for point, share in zip(mixtures(points), shares, strict=False)
        ]
        return torch.stack(losses).mean()

    def loss_at(self, run: Run, point: Mapping[str, Tensor], batch: Sequence[DistillationBatch]) -> Tensor:
        """This process's share of the loss at one point, the mean over sources.

        Args:
            run: the module that runs the stage.
            point: parameters by name.
            batch: one of every source.
        """
        return torch.stack(
            [share_of_mean(run, source, lambda part: self._mean_loss(point, part)) for source in batch]
        ).mean()

    def _mean_loss(self, point: Mapping[str, Tensor], batch: DistillationBatch) -> Mean:
        model, inputs = self.student, batch.inputs
        if self.options.target == "labels":
            return at_point(model, point, labels_loss, inputs), torch.tensor(float(len(batch)))
        output = at_point(model, point, output_of, inputs)
        return distillation_loss(output, self.targets(batch), inputs), rows_that_count(output, inputs)

    @torch.no_grad()
    def assign(self, run: Run, batch: Sequence[DistillationBatch]) -> None:
        """Assign hidden units and heads again, of each moving model towards the mean of the others as they are now.

        What brings weights closer may leave a higher loss between them, so an assignment is kept only where the loss of
        the present step falls.

        Args:
            run: the module that runs the stage.
            batch: of the step, on its device.
        """
        if not self.twins.discrete:
            return
        assert self.optimizer is not None
        optimizer = self.optimizer[0]
        for position in range(len(self.twins.moving)):
            elements = self.twins.proposed(position)
            if not elements:
                continue
            before = self._judged(run, batch)
            self.twins.reorder(position, elements, optimizer)
            # Neither where it rises nor where it is no number any more.
            if not self._judged(run, batch) < before:
                back = Alignment(self.twins.blueprint, elements).inverse().elements
                self.twins.reorder(position, back, optimizer)

    def _judged(self, run: Run, batch: Sequence[DistillationBatch]) -> float:
        """The loss of the present step, all processes together."""
        return float(run.total(self.loss(run, batch)))

    @torch.no_grad()
    def _has_gained(self, run: Run) -> bool:
        """False if the start has no higher loss on the last batch: models that agree already stay as they are."""
        last, self._last = self._last, None
        start = inf if last is None else float(run.total(self._loss_of(run, last, self.twins.mixtures_at_start)))
        return last is None or self._judged(run, last) < start

    def finish(self, run: Run) -> Refined:
        """The refined alignment of every model, or where to start if that is no worse; and the loss come to."""
        has_gained = self._has_gained(run)
        self.forget()
        # Those from before a checkpoint may lie elsewhere.
        late = [float(loss) for loss in self._losses[2 * len(self._losses) // 3 :]]
        found = self.twins.alignments() if has_gained else list(self.twins.start)
        return Refined(found, fmean(late) if late else inf)

    def pack(self, result: Refined) -> Any:
        """The elements of every alignment with what it fills, and the loss."""
        return {"alignments": _packed(result.alignments), "loss": result.loss}

    def unpack(self, packed: Any) -> Refined:
        """The result that `pack` was given."""
        return Refined(self._unpacked(packed["alignments"]), packed["loss"])

    def state(self) -> dict[str, Any]:
        """The state of a `Descent`, its losses, and its start: another machine may have found another start."""
        return {**super().state(), "losses": list(self._losses), "start": _packed(self.twins.start)}

    def _unpacked(self, packed: Any) -> list[Alignment]:
        return [Alignment(self.twins.blueprint, elements, filling) for elements, filling in packed]


def _packed(alignments: Sequence[Alignment]) -> Any:
    """The elements of every alignment, and what it fills."""
    return [(dict(alignment.elements), dict(alignment.filling)) for alignment in alignments]


def refined(
    models: Sequence[nn.Module],
    blueprint: Blueprint,
    alignments: Sequence[Alignment],
    batches: Any,
    options: RefineOptions | None = None,
    anchor: int = 0,
    spaces: Sequence[Space] | None = None,
    known: Sequence[Tensor] | None = None,
    label: str = "learned matching",
) -> Stages[list[Alignment]]:
    """Alignments refined by gradient, so that what lies between the twins has low loss.

    Args:
        models: end models, of one architecture; not modified.
        blueprint: of the alignments.
        alignments: one for each model, from weight matching for instance: gradients find the way from there, not from
            the identity. Of the folded blueprint if the models were folded.
        batches: inputs that all models teach on, an iterable of dicts (a list, a DataLoader), with labels or without;
            or a sequence with one such iterable for each model, which alone teaches there. Read once, and only as far
            as the steps need and memory allows; where there is more it should come in random order.
        options: how to descend; the defaults if None.
        anchor: index of the model whose alignment stays as it is.
        spaces: those to learn; None for all.
        known: for each model which labels it knows; nobody teaches one that it does not.
        label: see `Stage`.

    Returns:
        An alignment for each model, in order; every twin computes its end model's function exactly.

    Raises:
        InputError: models, alignments and batches that do not fit each other, or labels wanted and not given.
    """
    if any(alignment.blueprint.fingerprint != blueprint.fingerprint for alignment in alignments):
        raise InputError("the alignments belong to another blueprint than the one given")
    stage = Refinement(models, alignments, batches, options or RefineOptions(), anchor, spaces, known, label)
    return (yield from result_of(stage)).alignments
