"""The changes of a transformer that keep its function. No data, no optimisation."""

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.blueprint import Blueprint, Space, SymmetryError

__all__ = [
    "Alignment",
    "Blueprint",
    "Space",
    "SymmetryError",
    "blueprint",
]
