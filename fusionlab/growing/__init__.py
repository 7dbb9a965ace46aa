"""A model embedded into a larger architecture: the same function with more width, layers, heads or units.

Written once over blueprints. An axis of the small model and the same axis of the larger one (`axes`) say where every
entry goes and by what factor (`gather`); `layers` says which layer becomes which, `target` what the larger architecture
is, and `growth` tries what axes leave open and accepts nothing that a forward pass in float64 does not confirm.
"""

from fusionlab.growing.growth import Growth, grown
from fusionlab.growing.several import described, differ_in_size, grown_to_one_size, size_range, told
from fusionlab.growing.shrinking import Shrinkage, shrunk

__all__ = [
    "Growth",
    "Shrinkage",
    "described",
    "differ_in_size",
    "grown",
    "grown_to_one_size",
    "shrunk",
    "size_range",
    "told",
]
