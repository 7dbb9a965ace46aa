"""The choice of an alignment: one engine over blueprints, nothing that knows an architecture.

Every file in ``matchers`` and ``starts`` registers what it holds and is found by itself.
"""

import importlib
import pkgutil
from pathlib import Path

for _folder in ("matchers", "starts"):
    for _module in pkgutil.iter_modules([str(Path(__file__).parent / _folder)]):
        importlib.import_module(f"{__name__}.{_folder}.{_module.name}")
