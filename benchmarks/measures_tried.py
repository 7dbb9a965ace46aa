"""Measures that weights are matched in: by the moments of what they read, by their spectra, by their modules' sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.models import with_state
from fusionlab.statistics import Grams

# Directions that are read less than this share of the mean count as if they were read so much.
LEAST = 1e-6


@dataclass(frozen=True)
class Measure:
    """What is made of each matrix W (bias b beside it) before models are matched.

    All of it commutes with rotations and permutations of what a matrix reads and writes, so that what matches the
    matrices so made is an alignment of the models.

    Attributes:
        name: in tables.
        moments: the power p in [W b] C^(p/2), where C is the mean of x x^T over the inputs x, with a one where there is
            a bias: with 1 the distance is that of the outputs.
        is_real: whether C is of real inputs; else of synthetic ones.
        spectrum: the power of the singular values; with 0 all are alike, above 1 the largest count more. The
            matrix keeps its length.
        relative: see `MatchOptions`.
    """

    name: str
    moments: float = 0.0
    is_real: bool = False
    spectrum: float = 1.0
    relative: float = 0.5


TRIED = {
    "distance": Measure("the distance, as `weights` has it (`relative` 0.5)"),
    "relative 0": Measure("`relative` 0", relative=0.0),
    "relative 1": Measure("`relative` 1", relative=1.0),
    "moments 0.25": Measure("moments of synthetic inputs, power 0.25", moments=0.25),
    "moments 0.25, relative 1": Measure("the same, `relative` 1", moments=0.25, relative=1.0),
    "moments 0.5": Measure("moments of synthetic inputs, power 0.5", moments=0.5),
    "moments 1": Measure("moments of synthetic inputs, power 1", moments=1.0),
    "real 0.25": Measure("moments of real inputs, power 0.25", moments=0.25, is_real=True),
    "real 0.5": Measure("moments of real inputs, power 0.5", moments=0.5, is_real=True),
    "real 1": Measure("moments of real inputs, power 1", moments=1.0, is_real=True),
    "spectrum 0.5": Measure("spectra, power 0.5", spectrum=0.5),
    "spectrum 0.75": Measure("spectra, power 0.75", spectrum=0.75),
    "spectrum 1.25": Measure("spectra, power 1.25", spectrum=1.25),
    "spectrum 1.5": Measure("spectra, power 1.5", spectrum=1.5),
    "spectrum 1.5, relative 1": Measure("the same, `relative` 1", spectrum=1.5, relative=1.0),
    "spectrum 2": Measure("spectra, power 2", spectrum=2.0),
    "spectrum 1.5, moments 0.25": Measure("spectra, power 1.5, of moments, power 0.25", moments=0.25, spectrum=1.5),
}


@torch.no_grad()
def in_measure(model: nn.Module, measure: Measure, grams: Grams | None) -> nn.Module:
    """A model whose matrices are in a measure; its function is another one, which nobody asks for.

    Args:
        model: in the gauge that it is matched in; not modified.
        measure: the measure.
        grams: of the model's linear maps, where the measure has moments.
    """
    state = dict(model.state_dict())
    for name, linear in (grams.maps if grams is not None else {}).items():
        assert grams is not None
        transposed = linear.dim == 0
        flat = state[name].double().T if transposed else state[name].double().flatten(1)
        bias = None if linear.bias is None else state[linear.bias].double()
        whole = flat if bias is None else torch.cat([flat, bias[:, None]], 1)
        moments = grams.matrices[linear.inputs] / grams.rows[linear.inputs]
        moments = moments[:-1, :-1] if bias is None else moments
        whole = whole @ _power(moments, measure.moments / 2)
        made = whole[:, : flat.shape[1]]
        state[name] = (made.T if transposed else made.reshape(state[name].shape)).to(state[name].dtype).contiguous()
        if linear.bias is not None:
            state[linear.bias] = whole[:, -1].to(state[linear.bias].dtype)
    if measure.spectrum != 1.0:
        state |= {name: _spectral(value, measure.spectrum) for name, value in state.items() if _is_matrix(value)}
    return with_state(model, state)


def _power(matrix: Tensor, power: float) -> Tensor:
    """A power of a positive semidefinite matrix, whose mean eigenvalue is made one before."""
    values, vectors = torch.linalg.eigh(matrix.double())
    return (vectors * (values / values.mean()).clamp_min(LEAST).pow(power)) @ vectors.T


def _is_matrix(value: Tensor) -> bool:
    return value.is_floating_point() and value.ndim in (2, 4) and min(value.flatten(1).shape) > 1


def _spectral(value: Tensor, power: float) -> Tensor:
    left, singular, right = torch.linalg.svd(value.double().flatten(1), full_matrices=False)
    changed = (singular / singular.norm()).pow(power)
    whole = (left * (changed / changed.norm() * singular.norm())) @ right
    return whole.reshape(value.shape).to(value.dtype)
