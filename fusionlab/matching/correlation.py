"""Permutations of units by the correlation of their activations: what REPAIR and most work on convolutions match by.

Li et al., "Convergent learning: do different neural networks learn the same representations?" (2015); Tatro et al.,
"Optimizing mode connectivity via neuron alignment" (2020); Jordan et al., "REPAIR" (2023).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusionlab.matching.activations import activation_axes, activation_tensor, check_comparable
from fusionlab.matching.groups.permutation import improving_assignment
from fusionlab.matching.options import ALL, Selection
from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.statistics import Activations
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import Along, Axis, Fixed, spaces_of


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
    check_comparable(source, anchor)
    permuted = {space.name: space for space in spaces if space.group.has_permutations}
    elements: dict[str, Tensor] = {}
    for names, axes in _together(activation_axes(anchor, blueprint), permuted):
        # Tensors along one axis count by the sum of their correlations, which is what is matched, against the identity.
        sums: dict[Axis, Tensor] = {}
        for name, axis in axes.items():
            first, second = (_standardised(activation_tensor(one, name, axis.size)) for one in (source, anchor))
            sums[axis] = sums[axis] + first @ second.mT if axis in sums else first @ second.mT
        acting = {name: space for name, space in permuted.items() if name in names}
        if len(acting) == 1 and all(isinstance(axis, Along) for axis in sums):
            # One assignment. Products with the identity would take as long as it does.
            ((name, space),) = acting.items()
            total = torch.stack(list(sums.values())).sum(0).double()
            elements[name] = space.group.permuting(improving_assignment(total.mT))
            continue
        pseudo = Blueprint(blueprint.architecture, acting, {str(i): (axis, Fixed()) for i, axis in enumerate(sums)})
        found = match_permutations(
            {str(i): product for i, product in enumerate(sums.values())},
            {str(i): torch.eye(len(product)).to(product) for i, product in enumerate(sums.values())},
            pseudo,
            PermutationOptions(spaces=(ALL,)),
        )
        elements |= {name: found.element(name) for name in acting}
    return elements


def _together(axes: Mapping[str, Axis], chosen: Collection[str]) -> list[tuple[set[str], dict[str, Axis]]]:
    """Chosen spaces that axes have in common, and the axes by name; what none of them runs through is left out."""
    groups: list[tuple[set[str], dict[str, Axis]]] = []
    for name, axis in axes.items():
        spaces, parts = set(chosen) & set(spaces_of(axis)), {name: axis}
        if spaces:
            for group in [group for group in groups if group[0] & spaces]:
                groups.remove(group)
                spaces, parts = group[0] | spaces, group[1] | parts
            groups.append((spaces, parts))
    return groups


def _standardised(tensor: Tensor) -> Tensor:
    """Rows of mean zero and length one, shape ``(units, samples)``; of a unit that never varies zeros."""
    centred = tensor - tensor.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    return (centred / length.clamp_min(1e-300)).masked_fill(length <= 1e-9 * tensor.norm(dim=1, keepdim=True), 0)
