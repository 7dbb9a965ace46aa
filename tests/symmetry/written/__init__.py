"""Blueprints written by hand, one file for each family of architectures: inference must find what they say.

They were worked out on paper from the models' code, before there was inference.
"""

import importlib
import pkgutil

from torch import nn

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.architectures import DESCRIBED
from fusionlab.symmetry.architectures.descriptions import architecture_name
from tests.symmetry.written.registry import WRITTEN

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def written(model: nn.Module, folded: bool = False) -> Blueprint:
    """The blueprint that is written down for a model, in this folder or in the package."""
    name = architecture_name(getattr(model, "config", model), type(model).__name__)
    return (WRITTEN if name in WRITTEN else DESCRIBED).blueprint(model, folded)
