"""Optimisers of learned matching beside AdamW: what makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, AdamW, Optimizer

from fusionlab.learning.batches import DistillationBatch
from fusionlab.matching.coordinates import skew_dimension
from fusionlab.matching.learned import Refinement
from fusionlab.stages import Run

# Of L-BFGS, at each batch.
LOOKS = 10


class Muon(Optimizer):
    """Steps along the momentum with all singular values made one (Jordan et al., "Muon", 2024), inside the group.

    The coordinates of a rotation are a skew matrix, whose nearest orthogonal matrix is skew again, but for one
    dimension where the size is odd; those of a general matrix are one. Coordinates of neither kind, such as factors, go
    by Adam's rule.

    Args:
        parameters: coordinates, the last dimension of each being those of one element.
        lr: about what a coordinate moves by in a step.
        momentum: of the gradients, from 0 to below 1.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state |= {name: torch.zeros_like(parameter) for name in ("mean", "square")}
                    state["steps"] = torch.zeros(())
                state["steps"] += 1
                state["mean"].lerp_(parameter.grad, 1 - group["momentum"])
                state["square"].lerp_(parameter.grad.square(), 1e-3)
                parameter.add_(_direction(parameter.grad, state, group["momentum"]), alpha=-group["lr"])
        return loss


def _direction(gradient: Tensor, state: dict[str, Tensor], momentum: float) -> Tensor:
    count, ahead = gradient.shape[-1], gradient.lerp(state["mean"], momentum)
    size = round((1 + (1 + 8 * count) ** 0.5) / 2)
    if size > 1 and skew_dimension(size) == count:
        rows, columns = torch.triu_indices(size, size, 1)
        upper = ahead.new_zeros(*ahead.shape[:-1], size, size)
        upper[..., rows, columns] = ahead
        nearest = _orthogonal(upper - upper.mT)
        # Of an odd size one singular value is zero, and what stands along it is symmetric.
        return ((nearest - nearest.mT) / 2)[..., rows, columns]
    size = round(count**0.5)
    if size > 1 and size**2 == count:
        return _orthogonal(ahead.unflatten(-1, (size, size))).flatten(-2)
    steps = float(state["steps"])
    mean, square = state["mean"] / (1 - momentum**steps), state["square"] / (1 - 0.999**steps)
    return mean / (square.sqrt() + 1e-8)


def _orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, times the root of their size: a root mean square of one."""
    left, _, right = torch.linalg.svd(matrices)
    return (left @ right) * matrices.shape[-1] ** 0.5


@dataclass(frozen=True)
class Tried:
    """A way to descend.

    Attributes:
        name: in tables.
        make: the optimiser of coordinates, at a learning rate.
        rate: at the start; it falls as a cosine.
        looks: forward and backward passes of a step.
    """

    name: str
    make: Callable[[list[Tensor], float], Optimizer]
    rate: float
    looks: int = 1


def _adamw(second: float) -> Callable[[list[Tensor], float], Optimizer]:
    return lambda parameters, rate: AdamW(parameters, lr=rate, betas=(0.9, second), weight_decay=0.0)


class Looking(LBFGS):
    """L-BFGS that asks for the loss again by itself.

    Attributes:
        look: gives the loss of the present batch, with its gradients; None where a step is given what does.
    """

    look: Callable[[], Any] | None = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take as many steps as looks are left of a batch."""
        return super().step(self.look or closure)


def _lbfgs(parameters: list[Tensor], rate: float) -> Optimizer:
    # The first look at a batch is the stage's own.
    return Looking(parameters, lr=rate, max_iter=LOOKS - 1, max_eval=LOOKS - 1, history_size=10)


TRIED = {
    "adamw": Tried("AdamW, as `learned` has it", _adamw(0.999), 0.04),
    "adamw 0.95": Tried("AdamW, second moments over 20 steps", _adamw(0.95), 0.04),
    "muon 0.005": Tried("Muon, 0.005", Muon, 0.005),
    "muon": Tried("Muon, 0.01", Muon, 0.01),
    "muon 0.02": Tried("Muon, 0.02", Muon, 0.02),
    "lbfgs": Tried(f"L-BFGS, {LOOKS} looks at each batch", _lbfgs, 1.0, LOOKS),
    "lbfgs 0.3": Tried("L-BFGS, the same with steps of 0.3", _lbfgs, 0.3, LOOKS),
}


class TriedRefinement(Refinement):
    """A learned matching by another optimiser."""

    tried: Tried

    def make_optimizer(self) -> Any:
        """The optimiser, and its rate's fall."""
        optimizer = self.tried.make(list(self.twins.parameters()), self.tried.rate)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.options.steps)

    def step(self, run: Run, batch: list[DistillationBatch]) -> Tensor:
        """The loss of a step, which an optimiser may ask for again, at the same points."""
        assert self.optimizer is not None
        optimizer: Any = self.optimizer[0]
        place = self.done

        def look() -> Tensor:
            done, self.done = self.done, place
            optimizer.zero_grad()
            loss = self.loss(run, batch)
            self.done = done
            loss.backward()
            return loss

        optimizer.look = look
        return super().step(run, batch)
