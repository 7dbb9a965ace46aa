"""A way to merge models, as a streamed merge takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusionlab.dtypes import widest
from fusionlab.merging.method import MergeMethod
from fusionlab.streaming.stored import StoredModel, TensorSpec


@dataclass(frozen=True)
class Recipe:
    """A way to merge models.

    Attributes:
        method: whose unit is less than a model.
        hyperparameters: the method's own.
        weights: one for each model, summing to 1.
        seed: of anything random.
        dtype: to write all floating-point numbers in; for each the widest that any model has it in, if None.
    """

    method: MergeMethod
    hyperparameters: Mapping[str, Any]
    weights: Sequence[float]
    seed: int = 0
    dtype: torch.dtype | None = None

    def types(self, models: Sequence[StoredModel]) -> dict[str, TensorSpec]:
        """The type and shape of every tensor of the merge, in the order of the first model's files."""
        planned = {}
        for name, stored in models[0].tensors.items():
            dtype = widest(model.tensors[name].dtype for model in models)
            if dtype.is_floating_point and self.dtype is not None:
                dtype = self.dtype
            planned[name] = TensorSpec(dtype, stored.shape)
        return planned
