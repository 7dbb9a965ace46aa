"""Optimisers of learned matching that were tried: its own, and what makes the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, AdamW, Optimizer

from fusionlab.learning.batches import DistillationBatch
from fusionlab.matching.learned import Refinement
from fusionlab.matching.refine_options import RefineOptimizer
from fusionlab.stages import Run

# Of L-BFGS, at each batch.
LOOKS = 10


@dataclass(frozen=True)
class Tried:
    """A way to descend.

    Attributes:
        name: in tables.
        rate: at the start; it falls as a cosine.
        own: which of the optimisers of `learned` it is.
        make: the optimiser of coordinates at a learning rate, where it is none of those.
        looks: forward and backward passes of a step.
    """

    name: str
    rate: float
    own: RefineOptimizer = "muon"
    make: Callable[[list[Tensor], float], Optimizer] | None = None
    looks: int = 1


def _short(parameters: list[Tensor], rate: float) -> Optimizer:
    return AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)


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
    "adamw": Tried("AdamW", 0.04, "adamw"),
    "adamw 0.95": Tried("AdamW, second moments over 20 steps", 0.04, make=_short),
    "muon 0.005": Tried("Muon, 0.005", 0.005),
    "muon": Tried("Muon, 0.01, as `learned` has it", 0.01),
    "muon 0.02": Tried("Muon, 0.02", 0.02),
    "lbfgs": Tried(f"L-BFGS, {LOOKS} looks at each batch", 1.0, make=_lbfgs, looks=LOOKS),
    "lbfgs 0.3": Tried("L-BFGS, the same with steps of 0.3", 0.3, make=_lbfgs, looks=LOOKS),
}


class TriedRefinement(Refinement):
    """A learned matching by another optimiser."""

    tried: Tried

    def make_optimizer(self) -> Any:
        """The optimiser, and its rate's fall."""
        if self.tried.make is None:
            return super().make_optimizer()
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
