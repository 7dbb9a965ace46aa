"""The geometry of each group for optimisation, one file for each, under the names of `fusionlab.symmetry.groups`.

Every file here registers the `Geometry` of its group and is found by itself.
"""

import importlib
import pkgutil

from fusionlab.matching.groups.geometry import Geometry, geometry, geometry_of, registered, solve

__all__ = ["Geometry", "geometry", "geometry_of", "registered", "solve"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
