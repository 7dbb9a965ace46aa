"""Learned refinement: gradient descent on alignments, inside the group, until the line between the twins has low loss.

Theus et al., "Generalized linear mode connectivity for transformers" (2025), learn permutations and orthogonal maps on
the loss of a random point between two models. Here every continuous space of the blueprint is learned in a chart of its
own group, permutations are assigned again every few steps where that lowers the loss, and the end models' own outputs
are what is taught: no label is needed. Each twin computes its end model's function at every step, so that the result is
an alignment like any other.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from fusionlab.distillation import distillation_loss, output_of, teacher_targets
from fusionlab.errors import InputError
from fusionlab.forward import LABELS
from fusionlab.matching.charts import Charts
from fusionlab.matching.groups import geometry
from fusionlab.matching.lessons import Lesson, Lessons, gather
from fusionlab.matching.options import ALL, AS_IS, MatchOptions
from fusionlab.matching.points import Held, aliases, at_point, mixed, random_points
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.matching.universe import mean_state
from fusionlab.matching.weights import match_weights, workable
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.trainers import TrainerFactory, quiet_trainer

PAIR_RATE, MANY_RATE = 0.04, 0.02


class RefinementModule(LightningModule):
    """Refines the alignments of several models together; ``trainer.fit`` descends, ``alignments()`` has the result.

    Training batches are lists of `Lesson`s, or plain batches of inputs that all end models teach on. Validation batches
    are plain; they give ``val_loss``, the loss of the twins' mean. Under a distributed strategy processes draw
    different inputs and points, gradients are averaged, and all make the same assignments, from the same parameters.

    Args:
        models: end models, of one architecture; not modified.
        alignments: one for each, in order, of one blueprint (folded or not): where to start.
        options: how to descend.
        anchor: index of the model whose alignment stays as it is; that all others move is enough.
        spaces: those to learn; None for all.
        known: for each model which labels it knows, bool of shape ``(classes,)``; None where all know all.

    Raises:
        InputError: fewer than two models, another number of alignments, alignments of different blueprints, or nothing
            that can be learned by gradient.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        alignments: Sequence[Alignment],
        options: RefineOptions,
        anchor: int = 0,
        spaces: Sequence[Space] | None = None,
        known: Sequence[Tensor] | None = None,
    ) -> None:
        super().__init__()
        if len(models) < 2 or len(alignments) != len(models):
            raise InputError(f"{len(alignments)} alignments were given for {len(models)} models; expected two or more")
        blueprint = alignments[0].blueprint
        if any(other.blueprint.fingerprint != blueprint.fingerprint for other in alignments):
            raise InputError("the alignments belong to different blueprints; expected one for all")
        if not 0 <= anchor < len(models):
            raise InputError(f"anchor is {anchor}; expected an index from 0 to {len(models) - 1}")
        self.options, self.blueprint, self.start = options, blueprint, tuple(alignments)
        self.known = known
        self.moving = tuple(index for index in range(len(models)) if index != anchor)
        chosen = tuple(blueprint.spaces.values()) if spaces is None else tuple(spaces)
        self.charts = Charts(blueprint, chosen, len(self.moving), options.general)
        if not len(self.charts.coordinates):
            raise InputError("spaces holds nothing that gradients can move; expected a continuous space among them")
        self.discrete = tuple(space for space in chosen if geometry(space.group).is_assigned)
        self.end_models = nn.ModuleList(copy.deepcopy(model).eval() for model in models).requires_grad_(False)
        state_dicts = [alignment.apply(_workable(model)) for model, alignment in zip(models, alignments, strict=True)]
        # What is interpolated, in the basis where the descent starts; a tied parameter goes by its first name.
        names = [name for name, _ in models[0].named_parameters()]
        self.starts: Any = nn.ModuleList(Held({n: state[n] for n in names}, persistent=False) for state in state_dicts)
        self.aliases = aliases(models[0])
        self.orders: Any = nn.ModuleList(
            Held({space.name: space.group.identity(space.copies) for space in self.discrete}, persistent=True)
            for _ in self.moving
        )
        continuous = [space.name for found in self.charts.kinds.values() for space in found]
        self._learned = [name for name in blueprint.touching(continuous) if name in names]
        self._ordered = [name for name in blueprint.touching(s.name for s in self.discrete) if name in names]
        self._bases: list[dict[str, Tensor]] | None = None

    # --- the twins ---------------------------------------------------------------------------------------------------

    def alignments(self) -> list[Alignment]:
        """The refined alignment of every model, in float64, on the CPU."""
        found = list(self.start)
        with torch.no_grad():
            charts = self.charts.elements(torch.float64)
            for index, orders, learned in zip(self.moving, self.orders, charts, strict=True):
                first, then = (Alignment(self.blueprint, _on("cpu", e)) for e in (orders.tensors(), learned))
                found[index] = then.compose(first).compose(self.start[index])
        return found

    def twins(self) -> list[dict[str, Tensor]]:
        """The parameters of every model in its present basis, differentiable in the coordinates."""
        if self._bases is None:
            self._bases = self._discretely_moved()
        twins = list(self._bases)
        with torch.autocast(self.device.type, enabled=False):
            for index, elements in zip(self.moving, self.charts.elements(), strict=True):
                step = Alignment(self.blueprint, elements)
                moved = {name: step.apply_to(name, twins[index][name]) for name in self._learned}
                twins[index] = {**twins[index], **moved}
        return twins

    @torch.no_grad()
    def _discretely_moved(self) -> list[dict[str, Tensor]]:
        """Every model's start after its discrete elements; those change seldom."""
        bases = [start.tensors() for start in self.starts]
        for index, orders in zip(self.moving, self.orders, strict=True):
            step = Alignment(self.blueprint, orders.tensors())
            bases[index] |= {name: step.apply_to(name, bases[index][name]) for name in self._ordered}
        return bases

    # --- fit ---------------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """AdamW with a cosine to zero. Nothing decays: that would pull the coordinates back to the start."""
        rate = self.options.learning_rate or (PAIR_RATE if len(self.end_models) == 2 else MANY_RATE)
        optimizer = torch.optim.AdamW(self.charts.parameters(), lr=rate, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.options.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train(self, mode: bool = True) -> RefinementModule:
        """Set the module's mode; the end models always answer as in evaluation, without dropout."""
        super().train(mode)
        self.end_models.eval()
        return self

    def on_fit_start(self) -> None:
        self._bases = None

    def on_validation_start(self) -> None:
        self._bases = None

    def on_train_batch_start(self, batch: Any, batch_index: int) -> None:
        if self.options.every and self.global_step and self.global_step % self.options.every == 0:
            self.assign(batch)

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        """The loss at one random point between all models, or at one between the two of every couple."""
        loss = self._step_loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def _step_loss(self, batch: Any) -> Tensor:
        """What the present step descends on; the same points however often it is asked."""
        draw = numpy.random.default_rng((self.options.seed, self.global_rank, self.global_step))
        points = random_points(len(self.end_models), self.options, draw)
        twins = self.twins()
        # Every couple learns on its own share of the inputs, so that a step costs the same.
        shares = zip(*(lesson.split(len(points)) for lesson in _lessons(batch)), strict=False)
        losses = [self._loss(mixed(twins, point), share) for point, share in zip(points, shares, strict=False)]
        return torch.stack(losses).mean()

    def validation_step(self, batch: Mapping[str, Tensor], batch_index: int, dataloader_idx: int = 0) -> None:
        """The loss of the twins' mean on held-out inputs."""
        count = len(self.end_models)
        loss = self._loss(mixed(self.twins(), [1 / count] * count), batch)
        self.log("val_loss", loss, prog_bar=True, add_dataloader_idx=False, sync_dist=True)

    def _loss(self, point: Mapping[str, Tensor], batch: Mapping[str, Tensor] | Sequence[Lesson]) -> Tensor:
        return torch.stack([self._lesson_loss(point, lesson) for lesson in _lessons(batch)]).mean()

    def _lesson_loss(self, point: Mapping[str, Tensor], lesson: Lesson) -> Tensor:
        model = self.end_models[0]
        if self.options.target == "labels":
            return at_point(model, point, labels_loss, lesson.batch)
        targets = lesson.targets or teacher_targets(list(self.end_models), lesson.batch, lesson.own, known=self.known)
        return distillation_loss(at_point(model, point, output_of, lesson.batch), targets, lesson.batch)

    # --- assignments -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def assign(self, batch: Any) -> None:
        """Assign hidden units and heads again, of each moving model towards the mean of the others as they are now.

        What brings weights closer may leave a higher loss between them, so an assignment is kept only where the loss of
        the present step falls.

        Args:
            batch: of the step, on its device.
        """
        if not self.discrete:
            return
        only = replace(self.blueprint, spaces={space.name: space for space in self.discrete})
        options = MatchOptions(spaces=(ALL,), rescale="off", start=AS_IS)
        for position, index in enumerate(self.moving):
            twins = self.twins()
            others = [twin for other, twin in enumerate(twins) if other != index]
            mean = mean_state(others)
            step = match_weights(self._with_aliases(twins[index]), self._with_aliases(mean), only, options)
            if not step.elements:
                continue
            before = self._judged(batch)
            self._reorder(position, step.elements)
            # Neither where it rises nor where it is no number any more.
            if not self._judged(batch) < before:
                self._reorder(position, step.inverse().elements)

    def _judged(self, batch: Any) -> float:
        """The loss of the present step, the mean over all processes."""
        return float(self.trainer.strategy.reduce(self._step_loss(batch), reduce_op="mean"))

    def _reorder(self, position: int, elements: Mapping[str, Tensor]) -> None:
        """Let discrete elements act on one moving model's twin."""
        found, orders = _on(self.device, elements), self.orders[position]
        optimizer: Any = self.optimizers(use_pl_optimizer=False)
        self.charts.permute(position, {n: e for n, e in found.items() if not e.is_floating_point()}, optimizer)
        before = Alignment(self.blueprint, orders.tensors())
        orders.update(Alignment(self.blueprint, found).compose(before).elements)
        self._bases = None

    def _with_aliases(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**state, **{alias: state[name] for alias, name in self.aliases.items()}}


def refine(
    models: Sequence[nn.Module],
    blueprint: Blueprint,
    alignments: Sequence[Alignment],
    batches: Any,
    options: RefineOptions | None = None,
    trainer: TrainerFactory | None = None,
    anchor: int = 0,
    spaces: Sequence[Space] | None = None,
    held_out: Any = None,
    known: Sequence[Tensor] | None = None,
) -> list[Alignment]:
    """Refine alignments by gradient, so that what lies between the twins has low loss.

    Args:
        models: end models, of one architecture; not modified.
        blueprint: of the alignments.
        alignments: one for each model, from weight matching for instance: gradients find the way from there, not from
            the identity. Of the folded blueprint if the models were folded.
        batches: inputs that all models teach on, an iterable of dicts (a list, a DataLoader), with labels or without;
            or a sequence with one such iterable for each model, which alone teaches there. Read once, and only as far
            as the steps need and memory allows; where there is more it should come in random order.
        options: how to descend; the defaults if None.
        trainer: makes the Trainer, called with a label for its progress bar and ``max_steps``; one quiet process if
            None.
        anchor: index of the model whose alignment stays as it is.
        spaces: those to learn; None for all.
        held_out: batches for ``val_loss``, which an early-stopping Trainer may watch.
        known: for each model which labels it knows; nobody teaches one that it does not.

    Returns:
        An alignment for each model, in order; every twin computes its end model's function exactly.

    Raises:
        InputError: models, alignments and batches that do not fit each other, or labels wanted and not given.
    """
    options = options or RefineOptions()
    if any(alignment.blueprint.fingerprint != blueprint.fingerprint for alignment in alignments):
        raise InputError("the alignments belong to another blueprint than the one given")
    module = RefinementModule(models, alignments, options, anchor, spaces, known)
    sources = _sources(batches, len(models))
    settings = {"max_steps": options.steps}
    chosen = quiet_trainer(devices=1, **settings) if trainer is None else trainer("learned matching", **settings)
    # The end models say what they make of the inputs where the descent will run.
    ends = list(module.to(chosen.strategy.root_device).end_models)
    needed = options.steps * options.batch_size // len(sources)
    how: Any = {"known": known, "mixed": options.mixtures, "seed": options.seed}
    pools = [gather(ends, source, own, needed, options.target == "outputs", **how) for own, source in sources]
    lessons = DataLoader(Lessons(pools, options.steps, options.batch_size, options.seed), batch_size=None)
    chosen.fit(module, lessons, held_out)
    return module.alignments()


def labels_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss on labels: a transformers model's own, cross-entropy for any other.

    Raises:
        InputError: a batch without labels.
    """
    if LABELS not in batch:
        raise InputError("target is 'labels', but the data holds none; expected batches with labels")
    if hasattr(model, "main_input_name"):
        return model(**batch).loss
    return cross_entropy(output_of(model, batch).flatten(0, -2), batch[LABELS].flatten())


def _sources(batches: Any, count: int) -> list[tuple[int | None, Any]]:
    """Each source of inputs with the index of the model that teaches there, None for all."""
    if not isinstance(batches, Sequence) or (batches and isinstance(batches[0], Mapping)):
        return [(None, batches)]
    if len(batches) != count:
        raise InputError(f"data holds {len(batches)} sets of batches for {count} models; expected one for each")
    return list(enumerate(batches))


def _lessons(batch: Mapping[str, Tensor] | Sequence[Lesson]) -> Sequence[Lesson]:
    """A plain batch is one lesson that all end models teach."""
    return [Lesson(batch)] if isinstance(batch, Mapping) else batch


def _workable(model: nn.Module) -> dict[str, Tensor]:
    """Parameters in float32 or better."""
    return {name: workable(x) if x.is_floating_point() else x for name, x in model.state_dict().items()}


def _on(device: torch.device | str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}
