"""Muon inside the groups: momentum, of which every singular value counts alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Direction = Callable[[Tensor], Tensor | None]
# Where nothing is a matrix, a step of Adam's is so much longer than an entry's of a matrix.
ADAM = 4.0


class Muon(Optimizer):
    """Steps along the momentum as a matrix with all singular values near one (Jordan et al., "Muon", 2024).

    A rotation's coordinates make a skew matrix, which stays one, and those of a general matrix that matrix. So a
    rotation turns all planes that the gradient tells of at one pace, not the steepest alone. Coordinates of no matrix,
    such as factors, move by Adam's rule.

    Args:
        parameters: coordinates.
        directions: for each, what makes a step of its momentum; None by Adam's rule.
        lr: what a coordinate of a matrix moves by in a step (root mean square), about radians for rotations.
        momentum: of the gradients, from 0 to below 1; Nesterov's.
        second: the decay of squared gradients in Adam's rule, from 0 to below 1.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        directions: Sequence[Direction | None],
        lr: float,
        momentum: float = 0.95,
        second: float = 0.999,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "second": second})
        self._directions = dict(zip(parameters, directions, strict=True))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step.

        Args:
            closure: computes the loss and its gradients anew; they are taken as they are if None.

        Returns:
            What the closure returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, momentum, second = self.state[parameter], group["momentum"], group["second"]
        if not state:
            state |= {"step": torch.zeros(()), "mean": torch.zeros_like(parameter)}
        state["step"] += 1
        state["mean"].lerp_(gradient, 1 - momentum)
        direction = self._directions[parameter]
        step = direction(gradient.lerp(state["mean"], momentum)) if direction is not None else None
        if step is not None:
            parameter.add_(step, alpha=-group["lr"])
            return
        square = state.setdefault("square", torch.zeros_like(parameter))
        square.lerp_(gradient.square(), 1 - second)
        taken = float(state["step"])
        root = (square / (1 - second**taken)).sqrt() + 1e-8
        parameter.addcdiv_(state["mean"] / (1 - momentum**taken), root, value=-ADAM * group["lr"])
