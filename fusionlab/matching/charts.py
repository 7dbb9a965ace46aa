"""Coordinates of every continuous space of several models, for gradient descent inside their groups.

Each group has a chart around its identity; see `fusionlab.matching.groups.geometry.Geometry.chart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.matching.groups import geometry
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.groups import Group


def refuse_unmoved(spaces: Sequence[Space], general: bool) -> None:
    """Refuse spaces of which none has coordinates.

    Args:
        spaces: that are to be learned.
        general: see `Charts`.

    Raises:
        InputError: permutations at most are among them.
    """
    if not any(geometry(space.group).coordinates(general) > 0 for space in spaces):
        raise InputError(
            "spaces holds nothing that gradients can move, permutations at most; expected a continuous space among "
            "them (channels of convolutions are matched by weights, activations or correlation)"
        )


class Charts(nn.Module):
    """Coordinates of every continuous space of several models; spaces of one group are mapped in one call.

    Args:
        blueprint: of the models.
        spaces: those to learn; the ones without coordinates are left out.
        count: how many models.
        general: whether invertible spaces may also be stretched.
    """

    def __init__(self, blueprint: Blueprint, spaces: Sequence[Space], count: int, general: bool = False) -> None:
        super().__init__()
        self.blueprint, self.count, self.general = blueprint, count, general
        self.kinds: dict[Group, list[Space]] = {}
        for space in spaces:
            if geometry(space.group).coordinates(general) > 0:
                self.kinds.setdefault(space.group, []).append(space)
        self.coordinates = nn.ParameterList(
            nn.Parameter(torch.zeros(count, sum(space.count for space in found), geometry(group).coordinates(general)))
            for group, found in self.kinds.items()
        )

    def elements(self, dtype: torch.dtype | None = None) -> list[dict[str, Tensor]]:
        """The elements of each model by space, differentiable.

        Args:
            dtype: to compute in; that of the coordinates if None.
        """
        models: list[dict[str, Tensor]] = [{} for _ in range(self.count)]
        for (group, spaces), coordinates in zip(self.kinds.items(), self.coordinates, strict=True):
            found = geometry(group).chart(coordinates.to(dtype or coordinates.dtype), self.general)
            for elements, mine in zip(models, found, strict=True):
                elements.update(_split(spaces, mine))
        return models

    def steepest(self) -> list[Callable[[Tensor], Tensor | None]]:
        """For each tensor of coordinates, the direction of a step against a gradient; see `Geometry.steepest`."""
        return [partial(geometry(group).steepest, general=self.general) for group in self.kinds]

    @torch.no_grad()
    def permute(self, model: int, orders: Mapping[str, Tensor], optimizer: torch.optim.Optimizer | None) -> None:
        """Move the coordinates of one model's copies as permutations of the spaces that index them say.

        Args:
            model: its index.
            orders: by space, permutations that act before the charts from now on.
            optimizer: whose moments of the coordinates move along.
        """
        for spaces, coordinates in zip(self.kinds.values(), self.coordinates, strict=True):
            moments = optimizer.state.get(coordinates, {}) if optimizer is not None else {}
            for tensor in (coordinates, *(x for x in moments.values() if x.shape == coordinates.shape)):
                parts = Alignment(self.blueprint, dict(_split(spaces, tensor[model])))
                moved = Alignment(self.blueprint, orders).compose(parts).elements
                flat = [moved[s.name].reshape(s.count, -1) for s in spaces]
                tensor[model] = torch.cat(flat)


def _split(spaces: Sequence[Space], stacked: Tensor) -> dict[str, Tensor]:
    """Cut what is stacked over the copies of several spaces into one tensor ``(*copies, ...)`` for each."""
    parts = stacked.split([space.count for space in spaces])
    return {s.name: part.reshape(*s.copies, *part.shape[1:]) for s, part in zip(spaces, parts, strict=True)}
