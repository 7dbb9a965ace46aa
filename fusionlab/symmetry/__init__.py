"""The changes of a transformer that keep its function. No data, no optimisation."""

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.architectures import blueprint_from_config, known_architectures
from fusionlab.symmetry.blueprint import Blueprint, Space, SymmetryError

__all__ = [
    "Alignment",
    "Blueprint",
    "Space",
    "SymmetryError",
    "blueprint",
    "blueprint_from_config",
    "known_architectures",
]
