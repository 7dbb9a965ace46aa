"""Blueprints written down, for what inference cannot see: one file for each family, found by the name it registers.

Each file says in its first lines why it is needed. A model is looked up by its config's ``model_type`` (transformers)
or, where it has none, by ``package.Class`` (timm, torch).
"""

import importlib
import pkgutil

from fusionlab.symmetry.architectures.descriptions import DESCRIBED

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["DESCRIBED"]
