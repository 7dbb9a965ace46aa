"""The twins of several models as functions of coordinates in their groups, for gradient descent.

Of a grown model the numbers that its function does not depend on may be learned too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from fusionlab.batch_norm import running_statistics
from fusionlab.errors import InputError
from fusionlab.learning.points import BufferDict, aliases, mixed
from fusionlab.matching.charts import Charts, refuse_unmoved
from fusionlab.matching.filling import Filling
from fusionlab.matching.groups import geometry
from fusionlab.matching.options import ALL, AS_IS, MatchOptions
from fusionlab.matching.universe import mean_state
from fusionlab.matching.weights import match_weights, workable
from fusionlab.sharding import whole
from fusionlab.symmetry import Alignment, Space

# Of a model's parameters, in bytes: from here on each is made anew in the backward pass, and none is kept meanwhile.
LARGE = 2**26


class Twins(nn.Module):
    """The twins of several models, as differentiable functions of coordinates in their groups.

    Args:
        models: end models, of one architecture; not modified.
        alignments: one for each, in order, of one blueprint (folded or not): where to start.
        anchor: index of the model whose alignment stays as it is; that all others move is enough.
        spaces: those to learn; None for all.
        general: whether invertible spaces may also be stretched.
        unseen: whether the entries of grown models that change nothing (`fusionlab.symmetry.unseen`) have coordinates
            too, also where such a model is the anchor.

    Raises:
        InputError: fewer than two models, another number of alignments, alignments of different blueprints, or nothing
            that can be learned by gradient.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        alignments: Sequence[Alignment],
        anchor: int = 0,
        spaces: Sequence[Space] | None = None,
        general: bool = True,
        unseen: bool = False,
    ) -> None:
        super().__init__()
        if len(models) < 2 or len(alignments) != len(models):
            raise InputError(f"{len(alignments)} alignments were given for {len(models)} models; expected two or more")
        blueprint = alignments[0].blueprint
        if any(other.blueprint.fingerprint != blueprint.fingerprint for other in alignments):
            raise InputError("the alignments belong to different blueprints; expected one for all")
        if not 0 <= anchor < len(models):
            raise InputError(f"anchor is {anchor}; expected an index from 0 to {len(models) - 1}")
        self.blueprint = blueprint
        self.moving = tuple(index for index in range(len(models)) if index != anchor)
        chosen = tuple(blueprint.spaces.values()) if spaces is None else tuple(spaces)
        refuse_unmoved(chosen, general)
        self.charts = Charts(blueprint, chosen, len(self.moving), general)
        self.discrete = tuple(space for space in chosen if geometry(space.group).is_assigned)
        # What is interpolated, in the basis where the descent starts; a tied parameter goes by its first name.
        every = [blueprint.stacked(_workable(model)) for model in models]
        names = list(blueprint.stacked(_interpolated(models[0])))
        self.starts: Any = nn.ModuleList(
            BufferDict({n: torch.empty_like(state[n]) for n in names}, persistent=False) for state in every
        )
        self.start, self._models, self._is_started = tuple(alignments), tuple(models), False
        self.fillings: Any = nn.ModuleList(Filling(model, blueprint, names if unseen else ()) for model in models)
        self.aliases = aliases(models[0])
        self.orders: Any = nn.ModuleList(
            BufferDict({space.name: space.group.identity(space.copies) for space in self.discrete}, persistent=True)
            for _ in self.moving
        )
        continuous = [space.name for found in self.charts.kinds.values() for space in found]
        self._learned = [name for name in blueprint.touching(continuous) if name in names]
        self._ordered = [name for name in blueprint.touching(s.name for s in self.discrete) if name in names]
        self._bases: list[dict[str, Tensor]] | None = None
        self._is_by_parts = sum(every[0][name].nbytes for name in names) >= LARGE

    def start_from(self, alignments: Sequence[Alignment]) -> None:
        """Let the coordinates count from other alignments.

        Args:
            alignments: one for each model, of the blueprint.
        """
        self.start, self._is_started = tuple(alignments), True
        # One after another: where they are shared out, no more than one is whole.
        for held, model, alignment in zip(self.starts, self._models, self.start, strict=True):
            state = self.blueprint.stacked(alignment.apply(_workable(model)))
            held.update({name: state[name] for name in held.names})
        self.refresh()

    def share_out(self, mesh: DeviceMesh) -> None:
        """Let each of several processes hold a part of what the models start from.

        All processes then ask for twins side by side. A tensor of all models is whole while it is mapped, and again in
        the backward pass, as those of large models are.

        Args:
            mesh: the processes, in one dimension.
        """
        for held in self.starts:
            held.share_out(mesh)
        self._is_by_parts = True

    @property
    def device(self) -> torch.device:
        """The device that the coordinates are on."""
        return next(self.charts.parameters()).device

    def alignments(self) -> list[Alignment]:
        """The alignment of every model as it is now, in float64, on the CPU."""
        found = list(self.start)
        with torch.no_grad():
            charts = self.charts.elements(torch.float64)
            for index, orders, learned in zip(self.moving, self.orders, charts, strict=True):
                first, then = (Alignment(self.blueprint, _on("cpu", e)) for e in (orders.tensors(), learned))
                found[index] = then.compose(first).compose(self.start[index])
        return [replace(one, filling=filling.found()) for one, filling in zip(found, self.fillings, strict=True)]

    def states(self) -> list[dict[str, Tensor]]:
        """The parameters of every model in its present basis, differentiable in the coordinates."""
        if self._bases is None:
            self._bases = self._discretely_moved()
        with torch.autocast(self.device.type, enabled=False):
            twins = [{**base, **self._filled(index)} for index, base in enumerate(self._bases)]
            for index, elements in zip(self.moving, self.charts.elements(), strict=True):
                step = Alignment(self.blueprint, elements)
                moved = {name: step.apply_to(name, twins[index][name]) for name in self._learned}
                twins[index] = {**twins[index], **moved}
        return twins

    def mixtures(self, points: Sequence[Sequence[float]]) -> Iterator[dict[str, Tensor]]:
        """The weighted sums of the models' parameters in their present bases, differentiable in the coordinates.

        Args:
            points: for each sum the weight of every model; those of weight 0 are left out.
        """
        if not self._is_by_parts:
            yield from map(partial(mixed, self.states()), points)
            return
        made = self._by_name()
        for point in points:
            with torch.autocast(self.device.type, enabled=False):
                yield {
                    name: checkpoint(_weighted, make, point, use_reentrant=False, preserve_rng_state=False)
                    for name, make in made.items()
                }

    def mixtures_at_start(self, points: Sequence[Sequence[float]]) -> Iterator[dict[str, Tensor]]:
        """The weighted sums of the models' parameters where the descent starts; see `mixtures`."""
        self._start_once()
        for point in points:
            yield {name: _weighted(partial(self._at_start, name), point) for name in self.starts[0].names}

    def _at_start(self, name: str, index: int) -> Tensor:
        return whole(self.starts[index].tensors()[name])

    def _by_name(self) -> dict[str, Callable[[int], Tensor]]:
        """For every parameter a function that makes it, of the model in a place, from what all processes hold of it."""
        self._start_once()
        filled = [self._filled(index) for index in range(len(self.starts))]
        orders = {
            index: Alignment(self.blueprint, held.tensors())
            for index, held in zip(self.moving, self.orders, strict=True)
        }
        with torch.autocast(self.device.type, enabled=False):
            steps = {
                index: Alignment(self.blueprint, elements)
                for index, elements in zip(self.moving, self.charts.elements(), strict=True)
            }

        def make(name: str, index: int) -> Tensor:
            if name in filled[index]:
                tensor = filled[index][name]
            else:
                tensor = self._at_start(name, index)
                if index in orders and name in self._ordered:
                    tensor = orders[index].apply_to(name, tensor)
            return steps[index].apply_to(name, tensor) if index in steps and name in self._learned else tensor

        return {name: partial(make, name) for name in self.starts[0].names}

    def _filled(self, index: int) -> dict[str, Tensor]:
        """The parameters of one model that it was grown by, after its start and its discrete elements."""
        found: dict[str, Tensor] = self.fillings[index].tensors()
        steps = [self.start[index]]
        if index in self.moving:
            steps.append(Alignment(self.blueprint, self.orders[self.moving.index(index)].tensors()))
        for step in steps:
            found = {name: step.apply_to(name, tensor) for name, tensor in found.items()}
        return found

    @torch.no_grad()
    def _discretely_moved(self) -> list[dict[str, Tensor]]:
        """Every model's start after its discrete elements; those change seldom."""
        self._start_once()
        bases = [start.tensors() for start in self.starts]
        for index, orders in zip(self.moving, self.orders, strict=True):
            step = Alignment(self.blueprint, orders.tensors())
            bases[index] |= {name: step.apply_to(name, bases[index][name]) for name in self._ordered}
        return bases

    def _start_once(self) -> None:
        if not self._is_started:
            self.start_from(self.start)

    def refresh(self) -> None:
        """Forget what followed from the discrete elements and the device as they were before."""
        self._bases = None

    def proposed(self, position: int) -> dict[str, Tensor]:
        """Discrete elements that bring one moving model nearest to the mean of the others as they are now, by weights.

        Args:
            position: of the model among those that move.
        """
        options = MatchOptions(spaces=(ALL,), rescale="off", start=AS_IS)
        twin, mean = map(self._with_aliases, self._beside_the_others(self.moving[position]))
        held = {name: axes for name, axes in self.blueprint.parameters.items() if name in twin}
        only = replace(self.blueprint, spaces={space.name: space for space in self.discrete}, parameters=held)
        step = match_weights(twin, mean, only, options)
        return dict(step.elements)

    def _beside_the_others(self, index: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One model as it is now, and the mean of the others."""
        if not self._is_by_parts:
            twins = self.states()
            return twins[index], mean_state([twin for other, twin in enumerate(twins) if other != index])
        twin: dict[str, Tensor] = {}
        mean: dict[str, Tensor] = {}
        for name, make in self._by_name().items():
            tensors = [make(other) for other in range(len(self.starts))]
            twin[name] = tensors.pop(index)
            mean |= mean_state([{name: tensor} for tensor in tensors])
        return twin, mean

    @torch.no_grad()
    def directions(self) -> list[Callable[[Tensor], Tensor | None] | None]:
        """For each parameter, in order, the direction of a step against a gradient; None where it is of no group."""
        known = dict(zip(self.charts.coordinates, self.charts.steepest(), strict=True))
        return [known.get(parameter) for parameter in self.parameters()]

    def reorder(self, position: int, elements: Mapping[str, Tensor], optimizer: Optimizer) -> None:
        """Let discrete elements act on one moving model's twin.

        Args:
            position: of the model among those that move.
            elements: by space.
            optimizer: whose moments of the coordinates move along.
        """
        found, orders = _on(self.device, elements), self.orders[position]
        self.charts.permute(position, {n: e for n, e in found.items() if not e.is_floating_point()}, optimizer)
        before = Alignment(self.blueprint, orders.tensors())
        orders.update(Alignment(self.blueprint, found).compose(before).elements)
        self._bases = None

    def _with_aliases(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**state, **{alias: state[name] for alias, name in self.aliases.items()}}


def _interpolated(model: nn.Module) -> dict[str, Tensor]:
    """Tensors that twins mix, by name: parameters, and what else a state holds, such as a router's corrections.

    The running statistics of BatchNorm are left out: half way they are others.
    """
    state = model.state_dict()
    running = set(running_statistics(state))
    kept = {n: x for n, x in model.named_buffers() if n in state and n not in running and x.is_floating_point()}
    return {**dict(model.named_parameters()), **kept}


def _workable(model: nn.Module) -> dict[str, Tensor]:
    """Parameters in float32 or better."""
    return {name: workable(x) if x.is_floating_point() else x for name, x in model.state_dict().items()}


def _weighted(make: Callable[[int], Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted sum of one parameter of several models; none is made that has no weight."""
    used = [(index, weight) for index, weight in enumerate(weights) if weight]
    (total,) = mixed([{"": make(index)} for index, _ in used], [weight for _, weight in used]).values()
    return total


def _on(device: torch.device | str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}
