"""Workplaces of matchings: a device, and processes that share the work."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.mapped import MappedFiles
from fusionlab.matching.team import ALONE, Team
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.wrappers import unwrapped
from fusionlab.types import Model, State


@dataclass(frozen=True)
class Workplace:
    """A place for products, decompositions and assignments.

    Attributes:
        device: of products and decompositions (solvers of assignments are the processor's); None for wherever the
            models are.
        team: processes that all hold the models and match them together.
        files: where processes that share out models let whole ones rest; None where each keeps its own.
    """

    device: torch.device | None = None
    team: Team = ALONE
    files: MappedFiles | None = None

    def rest(self, *models: nn.Module) -> None:
        """Let models lie that are not needed just now, the same ones in every process.

        Args:
            models: keep their numbers; one that comes twice lies once.

        Raises:
            InputError: there is no room for them.
        """
        if self.files is not None:
            for model in dict.fromkeys(models):
                self.files.rest(model)

    def brought(self, state: State) -> State:
        """A model's parameters on the device."""
        return state if self.device is None else {name: _on(self.device, tensor) for name, tensor in state.items()}

    def taken(self, state: State) -> State:
        """Parameters from the device, on the processor."""
        return state if self.device is None else {name: tensor.cpu() for name, tensor in state.items()}

    def found(self, alignment: Alignment) -> Alignment:
        """An alignment that was found there, on the processor, where alignments are kept."""
        if self.device is None:
            return alignment
        return Alignment(alignment.blueprint, {name: element.cpu() for name, element in alignment.elements.items()})

    def twin(self, alignment: Alignment, model: Model) -> Model:
        """The matched twin of a model, made there, where the model is; see `Alignment.apply`."""
        if self.device is None or not alignment.elements:
            return alignment.apply(model)
        moved = Alignment(alignment.blueprint, self.brought(alignment.elements))
        plain = unwrapped(model)
        twin = copy.deepcopy(plain)
        twin.load_state_dict(moved.apply(self.brought(plain.state_dict())))
        return twin


def _on(device: torch.device, tensor: Tensor) -> Tensor:
    """A tensor on a device; on its way to a GPU through page-locked memory, which is copied beside other work."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


# In this process, wherever the models are.
HERE = Workplace()
