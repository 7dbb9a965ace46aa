"""Merging methods: each one file with one registered function, found by itself."""

import importlib
import pkgutil

from fusionlab.merging.registry import find_method, merge_states, methods

__all__ = ["find_method", "merge_states", "methods"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
