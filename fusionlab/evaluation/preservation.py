"""The promise that matching never changes a model's function, checked on random inputs."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.dtypes import main_dtype
from fusionlab.errors import InputError, first_line
from fusionlab.forward import logits
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.change import relative_change
from fusionlab.symmetry.float64 import InFloat64, take_plain_products
from fusionlab.symmetry.inputs import Input

EXACT = 1e-8
# Parameters of a model that the Python calls check: two copies in float64 are made of it.
MOST_CHECKED = 300_000_000
# Inputs of that check.
_FEW = 2
# Roundings of a grown model's type that filling may change its function by, relative to the largest logit.
_ROUNDINGS = 10


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
def random_logits(model: nn.Module, inputs: Sequence[Input], seed: int = 0, count: int = 4) -> Tensor:
    """Logits of a model on random inputs, by plain operations in float64; one seed gives one set of inputs.

    Args:
        model: in float64; made to take plain products, in place.
        inputs: what it takes.
        seed: of the inputs.
        count: how many inputs.

    Returns:
        Shape ``(count, 1, ..., classes)``.
    """
    device = next(model.parameters()).device
    take_plain_products(model)
    with InFloat64():
        # One at a time: sequence classifiers without a padding token refuse batches.
        drawn = samples(model, inputs, seed, count)
        return torch.stack([logits(model, {name: x.to(device) for name, x in one.items()}) for one in drawn])


def samples(model: nn.Module, inputs: Sequence[Input], seed: int, count: int) -> list[dict[str, Tensor]]:
    """Random inputs of a model, each a batch of one; one seed gives one set.

    None is padding: its embedding is zero in many models, for which all experts of a router are equal, so that their
    order decides.

    Args:
        model: says which token is padding.
        inputs: what the model takes.
        seed: of the inputs.
        count: how many.
    """
    config: Any = getattr(model, "config", None)
    padding = getattr(config, "pad_token_id", None)
    generator = torch.Generator().manual_seed(seed)
    return [{one.name: one.without(padding, one.random(1, generator)) for one in inputs} for _ in range(count)]


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
    inputs = alignment.blueprint.inputs
    original = copy.deepcopy(model).double().eval()
    try:
        reference = random_logits(original, inputs, seed, count)
    except TypeError as error:
        raise InputError(
            f"a {type(model).__name__} does not run on what is known of its inputs ({first_line(error)}), so that its "
            f"twin cannot be checked; expected a forward whose other inputs have defaults"
        ) from error
    exact = random_logits(alignment.apply(original), inputs, seed, count)
    stored = random_logits(copy.deepcopy(twin).double().eval(), inputs, seed, count)
    before = _before_it_acts(original, alignment, reference, main_dtype(model.state_dict()), seed)
    return preserved(reference, reference + (exact - before), stored)


def _before_it_acts(model: nn.Module, alignment: Alignment, reference: Tensor, dtype: torch.dtype, seed: int) -> Tensor:
    """Logits of a model that holds what an alignment puts into it first; its own where that is nothing.

    Entries that change nothing do so up to the rounding of the others: the mean that a LayerNorm takes from the stream
    is zero before numbers are rounded to a type, and not quite afterwards.

    Args:
        model: in float64.
        alignment: of the model.
        reference: the model's logits.
        dtype: that the model's numbers were rounded to.
        seed: of the inputs of `reference`.

    Raises:
        InputError: filling changed the function by more than such rounding.
    """
    if not alignment.filling:
        return reference
    filled = random_logits(
        replace(alignment, elements={}).apply(model), alignment.blueprint.inputs, seed, len(reference)
    )
    allowed, change = max(EXACT, _ROUNDINGS * torch.finfo(dtype).eps), relative_change(filled, reference)
    if not change <= allowed:
        raise InputError(
            f"filling a grown model changed its function: its logits differ by {change:.1e} of the largest on random "
            f"inputs, where {allowed:.0e} is allowed; expected a model as it was grown"
        )
    return filled


@torch.no_grad()
def check_alignments(models: Sequence[nn.Module], alignments: Sequence[Alignment], seed: int = 0) -> None:
    """Check on a few random inputs that alignments leave their models' functions alone, in float64.

    Nothing is checked where there is nothing to check on: the blueprint knows no inputs, or the model gives no finite
    outputs for them; nor of a model of more than `MOST_CHECKED` parameters, since its copies in float64 might not fit
    the memory.

    Args:
        models: as they are; not modified.
        alignments: one for each.
        seed: of the random inputs.

    Raises:
        InputError: a function changed by more than rounding.
    """
    for model, alignment in zip(models, alignments, strict=True):
        described = alignment.blueprint
        is_identity = not (alignment.elements or alignment.filling or described.gauge)
        if is_identity or not described.inputs or sum(p.numel() for p in model.parameters()) > MOST_CHECKED:
            continue
        original = copy.deepcopy(model)
        if next(original.parameters()).device.type == "mps":
            original = original.cpu()  # which has no float64
        original = original.double().eval()
        try:
            reference = random_logits(original, described.inputs, seed, _FEW)
        except Exception:  # a model's own code may want more than its blueprint knows of
            continue
        if reference.isfinite().all():
            before = _before_it_acts(original, alignment, reference, main_dtype(model.state_dict()), seed)
            exact = random_logits(alignment.apply(original), described.inputs, seed, _FEW)
            preserved(before, exact, exact)


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
    result = Preservation(relative_change(exact, reference), relative_change(stored, reference), scale)
    if not result.exact <= EXACT:
        raise InputError(
            f"matching changed the model's function: its logits differ by {result.exact:.1e} of the largest on random "
            f"inputs, where {EXACT:.0e} is allowed"
        )
    return result
