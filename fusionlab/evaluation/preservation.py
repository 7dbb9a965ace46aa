"""The promise that matching never changes a model's function, checked on random inputs."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.float64 import InFloat64, take_plain_products

EXACT = 1e-8


@dataclass(frozen=True)
class Preservation:
    """The difference between a twin's outputs and its end model's.

    Attributes:
        exact: largest difference in logits, both models and the alignment in float64, relative to the largest logit:
            whether the alignment is a symmetry at all.
        stored: the same between the end model and the twin as it is written, in its own dtype: the rounding.
        scale: the largest logit.
    """

    exact: float
    stored: float
    scale: float


@torch.no_grad()
def check_preservation(
    model: nn.Module, twin: nn.Module, alignment: Alignment, seed: int = 0, count: int = 4
) -> Preservation:
    """Compare a model with its matched twin on random inputs.

    Args:
        model: the end model.
        twin: `alignment` applied to it, in the model's own dtype.
        alignment: what made the twin.
        seed: of the random inputs.
        count: how many inputs.

    Raises:
        InputError: the function changed by more than rounding; nothing should be written.
    """
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    # One at a time: sequence classifiers without a padding token refuse batches.
    samples = [{i.name: i.random(1, generator).to(device) for i in alignment.blueprint.inputs} for _ in range(count)]
    original = copy.deepcopy(model).double().eval()
    exact_twin, stored_twin = alignment.apply(original), copy.deepcopy(twin).double().eval()
    for m in (original, exact_twin, stored_twin):
        take_plain_products(m)
    with InFloat64():
        reference, exact, stored = (
            torch.stack([logits(m, sample) for sample in samples]) for m in (original, exact_twin, stored_twin)
        )
    return preserved(reference, exact, stored)


def preserved(reference: Tensor, exact: Tensor, stored: Tensor) -> Preservation:
    """A comparison of logits, all in float64 and of one shape.

    Args:
        reference: of the end model.
        exact: of its twin, the alignment applied in float64.
        stored: of the twin as it is written.

    Raises:
        InputError: the function changed by more than rounding; nothing should be written.
    """
    scale = float(reference.abs().max())
    relative = scale or 1.0
    result = Preservation(
        float((exact - reference).abs().max()) / relative, float((stored - reference).abs().max()) / relative, scale
    )
    if not result.exact <= EXACT:
        raise InputError(
            f"matching changed the model's function: its logits differ by {result.exact:.1e} of the largest on random "
            f"inputs, where {EXACT:.0e} is allowed"
        )
    return result
