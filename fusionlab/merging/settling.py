"""Points on the line between two models, given activations of their own, as the papers draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from fusionlab.batch_norm import batch_norms, measured_on, remeasure
from fusionlab.merging.correction import correct
from fusionlab.types import Batch

Settle = Callable[[nn.Module, float], None]


def settling(start: nn.Module, end: nn.Module, batches: Iterable[Batch], corrected: bool = False) -> Settle | None:
    """A function that changes the model at a position on the line between two in place; the ends stay as they are.

    Args:
        start: the model at position 0; not modified.
        end: the model at position 1, in the same basis.
        batches: inputs, labels ignored; gone through more than once, and only a few.
        corrected: whether every unit gets the mean and spread that it has between the two models (`correct`); if not,
            BatchNorm layers get the running statistics of the point (`remeasure`).

    Returns:
        The function; None where there is nothing to change.
    """
    if not corrected and not batch_norms(start):
        return None

    @torch.no_grad()
    def settle(model: nn.Module, position: float) -> None:
        if position in (0, 1):
            return
        if not corrected:
            remeasure(model, batches)
            return
        shares = [1 - position, position]
        model.load_state_dict(correct(model, [start, end], measured_on(batches), shares).state_dict())

    return settle
