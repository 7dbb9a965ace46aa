"""Permutations of units by the correlation of their activations: what REPAIR and most work on convolutions match by.

Li et al., "Convergent learning: do different neural networks learn the same representations?" (2015); Tatro et al.,
"Optimizing mode connectivity via neuron alignment" (2020); Jordan et al., "REPAIR" (2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fusionlab.matching.activations import activation_tensors
from fusionlab.matching.options import ALL, Selection
from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.statistics import Activations
from fusionlab.symmetry import Alignment, Blueprint, Space


@dataclass(frozen=True)
class CorrelationOptions(Selection):
    """Options of the permutation of units by the correlation of their activations."""

    spaces: tuple[str, ...] = (ALL,)


def match_correlations(
    source: Activations, anchor: Activations, blueprint: Blueprint, options: CorrelationOptions
) -> Alignment:
    """The permutations of units that maximise the sum of correlations between a source's activations and an anchor's.

    Every unit's samples are centred and divided by their length, so that each counts as much as any other. No two
    spaces meet in one tensor, so that each assignment is optimal. Factors, planes of rotary positions and spaces that
    no linear map reads or writes keep their basis; elsewhere, rotations are confined to permutations.

    Args:
        source: activations of the model that is moved.
        anchor: activations of the model that keeps its basis, at the same rows of the same data.
        blueprint: of both models.
        options: which spaces to match.

    Returns:
        An alignment for the source.

    Raises:
        InputError: the two were not measured at the same rows, or not on the same linear maps.
    """
    return Alignment(blueprint, correlated(source, anchor, blueprint, options.select(blueprint)))


def correlated(
    source: Activations, anchor: Activations, blueprint: Blueprint, spaces: Sequence[Space]
) -> dict[str, Tensor]:
    """Elements of the spaces that linear maps read or write and that admit permutations, as `match_correlations` says.

    Args:
        source, anchor, blueprint: see `match_correlations`.
        spaces: those to match.

    Returns:
        By the space's name; those of all other spaces are left out.
    """
    permuted = [space for space in spaces if space.group.has_permutations]
    pseudo, first, second = activation_tensors(source, anchor, blueprint, permuted)
    if not pseudo.spaces:
        return {}
    found = match_permutations(
        {name: _standardised(tensor) for name, tensor in first.items()},
        {name: _standardised(tensor) for name, tensor in second.items()},
        pseudo,
        PermutationOptions(spaces=(ALL,)),
    )
    return {name: found.element(name) for name in pseudo.spaces}


def _standardised(tensor: Tensor) -> Tensor:
    """Rows of mean zero and length one, shape ``(units, samples)``; of a unit that never varies zeros."""
    centred = tensor - tensor.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    return (centred / length.clamp_min(1e-300)).masked_fill(length <= 1e-9 * tensor.norm(dim=1, keepdim=True), 0)
