"""Random mixtures of inputs: where real ones are few, what the end models say between them teaches as well."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.examples import example_count, unlike
from fusionlab.forward import LABELS

# Fewer inputs than this are filled up with mixtures where nothing else is said.
ENOUGH = 5000


def mixtures(batch: Mapping[str, Tensor], count: int, generator: torch.Generator) -> dict[str, Tensor] | None:
    """Convex combinations of two random examples each ("mixup", Zhang et al., 2018), without labels.

    Args:
        batch: inputs by name; the first dimension of each counts examples.
        count: how many to make.
        generator: of the draws.

    Returns:
        Inputs of the same names and shapes; None where one is not made of real numbers, such as tokens, or
        has several rows for an example.
    """
    inputs = {name: value for name, value in batch.items() if name != LABELS}
    if not inputs or not all(value.is_floating_point() for value in inputs.values()) or unlike(inputs) is not None:
        return None
    examples = example_count(inputs)
    first, second = torch.randint(examples, (2, count), generator=generator)
    share = torch.rand(count, generator=generator)
    mixed = {}
    for name, value in inputs.items():
        weight = share.to(value).view(count, *[1] * (value.ndim - 1))
        mixed[name] = weight * value[first] + (1 - weight) * value[second]
    return mixed
