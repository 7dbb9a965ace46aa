"""Assignments that follow the loss: of a pair of models whose stream is permuted only, and ways to find its order.

A trial moves the source of a pair (its twin stays exact) and is judged by the loss half way. `Halfway` says what that
loss is and descends on the continuous spaces, with permutations as they are, or with a matrix in their place that a
relaxation makes of numbers that are learned too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fusionlab.learning.distillation import Kind, Targets, distillation_loss, output_of, teacher_targets
from fusionlab.learning.points import at_point, mixed
from fusionlab.matching.assignment import assignment
from fusionlab.matching.charts import Charts
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.groups import Orthogonal, Permutation

State = dict[str, Tensor]
Relaxation = Callable[[Tensor], Tensor]
STREAM = "residual"
RATE, CONCENTRATION = 0.04, 10.0
PASSES = 20


class Halfway:
    """A source and an anchor in one basis, and the loss between them on inputs that the end models answer for.

    Attributes:
        source: parameters of the source's twin as it is now; a trial changes them.
        anchor: parameters of the anchor's twin.

    Args:
        models: source and anchor, in eval mode.
        alignments: of both, of one blueprint.
        inputs: by name, without labels; the first dimension counts examples.
        kept: type that what the end models return is kept in.
    """

    def __init__(
        self, models: Sequence[nn.Module], alignments: Sequence[Alignment], inputs: Mapping[str, Tensor],
        kept: torch.dtype = torch.float16,
    ) -> None:  # fmt: skip
        self.model, self.inputs, self.blueprint = models[1], inputs, alignments[0].blueprint
        self._models, self._type = models, kept
        self._kept: tuple[Tensor, Kind] | None = None
        names = [name for name, _ in models[0].named_parameters()]
        moved = [alignment.apply(model.state_dict()) for alignment, model in zip(alignments, models, strict=True)]
        self.source, self.anchor = ({name: state[name].detach() for name in names} for state in moved)

    def drawn(self, index: Tensor) -> tuple[State, Targets]:
        """Inputs by their places, and what the end models return for them on average."""
        if self._kept is None:
            places = torch.arange(len(next(iter(self.inputs.values())))).split(128)
            parts = [teacher_targets(self._models, self._at(part)) for part in places]
            self._kept = (torch.cat([part.values.to(self._type) for part in parts]), parts[0].kind)
        values, kind = self._kept
        return self._at(index), Targets(values[index].to(torch.promote_types(self._type, torch.float32)), kind)

    def _at(self, index: Tensor) -> State:
        return {name: value[index] for name, value in self.inputs.items()}

    def loss(self, source: State, batch: tuple[State, Targets], share: float = 0.5) -> Tensor:
        """The distillation loss at a point of the line, that share of it the source's."""
        point = mixed([source, self.anchor], [share, 1 - share])
        return distillation_loss(at_point(self.model, point, output_of, batch[0]), batch[1], batch[0])

    def moved(self, state: State, elements: Mapping[str, Tensor], blueprint: Blueprint | None = None) -> State:
        """A state after elements of some spaces."""
        step = Alignment(blueprint or self.blueprint, elements)
        touched = [name for name in self.blueprint.touching(elements) if name in state]
        return {**state, **{name: step.apply_to(name, state[name]) for name in touched}}

    def descend(
        self, steps: int, batch: int, rate: float, relaxation: Callable[[float], Relaxation] | None = None,
        roles: Sequence[str] = (), relaxed_rate: float = 0.0, seed: int = 0,
    ) -> int:  # fmt: skip
        """Learn the continuous spaces as `learned` does, and permutations where there is a relaxation.

        Args:
            steps: of AdamW, its rates falling along a cosine.
            batch: examples of a step.
            rate: the first one.
            relaxation: by the share of the steps that were taken, what makes matrices of learned numbers, at first the
                identity; none for permutations that stay.
            roles: of the permutations that are learned.
            relaxed_rate: the first rate of those numbers.
            seed: of the draws.

        Returns:
            How many coordinates another one was assigned to.
        """
        spaces = tuple(self.blueprint.spaces.values())
        example = next(iter(self.source.values()))
        charts = Charts(self.blueprint, spaces, 1, general=True).to(example)
        orders = [space for space in spaces if isinstance(space.group, Permutation) and str(space.role) in roles]
        relaxed = relaxed_blueprint(self.blueprint)
        latents = [nn.Parameter(torch.eye(s.group.size).expand(*s.copies, -1, -1).to(example)) for s in orders]
        groups: list[dict[str, Any]] = [{"params": list(charts.parameters()), "lr": rate}]
        optimizer = torch.optim.AdamW(
            [*groups, *([{"params": latents, "lr": relaxed_rate}] if latents else [])], weight_decay=0
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        draw, generator = numpy.random.default_rng(seed), torch.Generator().manual_seed(seed)
        count, base, left = len(next(iter(self.inputs.values()))), self.source, torch.empty(0, dtype=torch.int64)
        for step in range(steps):
            if len(left) < batch:
                left = torch.randperm(count, generator=generator)
            chosen, left = left[:batch], left[batch:]
            state = base
            if orders and relaxation is not None:
                how = relaxation(step / steps)
                matrices = {space.name: how(latent) for space, latent in zip(orders, latents, strict=True)}
                state = self.moved(base, matrices, relaxed)
            (elements,) = charts.elements()
            share = float(draw.beta(CONCENTRATION, CONCENTRATION))
            loss = self.loss(self.moved(state, elements), self.drawn(chosen), share)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            found = {space.name: nearest(latent) for space, latent in zip(orders, latents, strict=True)}
            (elements,) = charts.elements()
            self.source = self.moved(self.moved(base, found), elements)
        still = {space.name: space.group.identity(space.copies) for space in orders}
        return sum(int((order != still[name]).sum()) for name, order in found.items())

    @torch.no_grad()
    def swap(self, blocks: int, judges: int, seed: int = 0, space: str = STREAM) -> tuple[int, int]:
        """Exchange pairs of coordinates where the loss half way falls: all pairs are scored by exact differences.

        Those that improve are tried again, the best first, on other inputs and beside what was taken before them; pairs
        that share a coordinate with one that was taken are left.

        Args:
            blocks: examples that all pairs are scored on.
            judges: examples that decide.
            seed: of the draws.
            space: of the coordinates.

        Returns:
            How many pairs improved by themselves, and how many were taken.
        """
        generator, size = torch.Generator().manual_seed(seed), self.blueprint.spaces[space].group.size
        count = len(next(iter(self.inputs.values())))
        places = torch.randperm(count, generator=generator)
        first, then = (self.drawn(part) for part in (places[:blocks], places[blocks : blocks + judges]))
        gains = swap_gains(lambda order: float(self.loss(self.moved(self.source, {space: order}), first)), size)
        taken: set[int] = set()
        least = float(self.loss(self.source, then))
        for _, pair in gains:
            if taken & set(pair):
                continue
            tried = self.moved(self.source, {space: transposition(size, *pair)})
            if (loss := float(self.loss(tried, then))) < least:
                self.source, least, taken = tried, loss, taken | set(pair)
        return len(gains), len(taken) // 2


def relaxed_blueprint(blueprint: Blueprint) -> Blueprint:
    """The same axes with any matrix in place of a permutation; primal and dual agree, as they do for permutations."""
    spaces = {
        name: replace(space, group=Orthogonal(space.group.size)) if isinstance(space.group, Permutation) else space
        for name, space in blueprint.spaces.items()
    }
    return replace(blueprint, spaces=spaces)


def swap_gains(loss: Callable[[Tensor], float], size: int) -> list[tuple[float, tuple[int, int]]]:
    """The transpositions that lower a loss of permutations, with what they change it by, the best first."""
    still = loss(torch.arange(size))
    scored = [(loss(transposition(size, *pair)) - still, pair) for pair in combinations(range(size), 2)]
    return sorted(one for one in scored if one[0] < 0)


def transposition(size: int, one: int, other: int) -> Tensor:
    """The permutation that exchanges two coordinates."""
    order = torch.arange(size)
    order[one], order[other] = other, one
    return order


def nearest(matrix: Tensor) -> Tensor:
    """The permutations nearest to matrices, by assignment."""
    if matrix.ndim > 2:
        return torch.stack([nearest(one) for one in matrix])
    return assignment(matrix.detach())


def straight_through(latent: Tensor) -> Tensor:
    """The permutation nearest to the numbers, as a matrix; the gradient passes as if it were the numbers themselves."""
    return one_hot(nearest(latent), latent.shape[-1]).to(latent) + latent - latent.detach()


def sinkhorn(logits: Tensor, passes: int = PASSES) -> Tensor:
    """Rows and columns of ``exp(logits)`` scaled to sum to one, differentiable through every pass."""
    for _ in range(passes):
        logits = logits - logits.logsumexp(-1, keepdim=True)
        logits = logits - logits.logsumexp(-2, keepdim=True)
    return logits.exp()


class ImplicitSinkhorn(torch.autograd.Function):
    """Sinkhorn's scaling with the gradient of its limit (Pena et al., "Re-basin via implicit Sinkhorn", 2023).

    With M the limit, rows and columns of its derivative sum to zero, which is a linear system for two vectors.
    """

    @staticmethod
    def forward(context: Any, logits: Tensor) -> Tensor:
        found = sinkhorn(logits, 10 * PASSES)
        context.save_for_backward(found)
        return found

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        (found,) = context.saved_tensors
        size, weighted = found.shape[-1], found * slope
        eye = torch.eye(size, dtype=found.dtype).expand_as(found)
        system = torch.cat([torch.cat([eye, found], -1), torch.cat([found.mT, eye], -1)], -2)
        sums = torch.cat([weighted.sum(-1), weighted.sum(-2)], -1)
        # What is added to all rows and taken from all columns changes nothing: the shortest solution.
        solution = (torch.linalg.pinv(system, hermitian=True) @ sums.unsqueeze(-1)).squeeze(-1)
        rows, columns = solution[..., :size], solution[..., size:]
        return weighted - found * (rows.unsqueeze(-1) + columns.unsqueeze(-2))


def annealed(scaling: Relaxation, warm: float, cold: float) -> Callable[[float], Relaxation]:
    """Sinkhorn's scaling under a temperature that falls geometrically.

    Args:
        scaling: `sinkhorn`, or `ImplicitSinkhorn.apply`.
        warm: the first temperature.
        cold: the last one.
    """
    return lambda share: lambda latent: scaling(latent / (warm * (cold / warm) ** share))
