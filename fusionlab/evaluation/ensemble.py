"""The ensemble: all models run, their logits averaged. An upper reference for merges, never a merge itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.merge_weights import merge_weights


@dataclass(frozen=True)
class EnsembleOutput:
    """The output of an ensemble.

    Attributes:
        logits: shape ``(batch, ..., classes)``.
    """

    logits: Tensor


class Ensemble(nn.Module):
    """Several models as one that returns the weighted mean of their logits.

    Logits rather than probabilities are averaged, as in the model soups paper (Wortsman et al., 2022), so that the mean
    of n equal models is the model, and the ensemble of linear classifiers is their merge.

    It takes what its models take, by keywords if the first is a transformers model and in order otherwise, and returns
    an `EnsembleOutput` or plain logits accordingly. It runs as many models as it holds and is made to be tested, not
    to be saved or trained.

    Args:
        models: of one task, with the same classes in the same order; held, not copied.
        weights: one for each model, scaled to sum to 1; equal if None.

    Raises:
        InputError: no models, or weights that do not fit them.
    """

    def __init__(self, models: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if not models:
            raise InputError("an ensemble was given no models; expected at least one")
        self.models = nn.ModuleList(models)
        self.weights = merge_weights(weights, len(models))
        name = getattr(models[0], "main_input_name", None)
        if name is not None:
            # By this name `fusionlab.forward` knows a model that is called with keywords.
            self.main_input_name = name

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """The weighted mean of all models' logits, in float32 or better."""
        batch = named | {str(position): value for position, value in enumerate(inputs)}
        total: Tensor | None = None
        for model, weight in zip(self.models, self.weights, strict=True):
            found = logits(model, batch)
            found = weight * found.to(torch.promote_types(found.dtype, torch.float32))
            total = found if total is None else total + found
        assert total is not None
        return EnsembleOutput(total) if hasattr(self, "main_input_name") else total
