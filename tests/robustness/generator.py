"""Every kind of damage there is: importing them registers them."""

from tests.robustness import (
    damaged_adapters,
    damaged_configs,
    damaged_data,
    damaged_pickles,
    damaged_rest,
    damaged_safetensors,
    damaged_yaml,
)
from tests.robustness.cases import KINDS, Case, Place, lay_out, name_of

SOURCES = (
    damaged_adapters, damaged_configs, damaged_data, damaged_pickles, damaged_rest, damaged_safetensors, damaged_yaml
)  # fmt: skip

__all__ = ["KINDS", "SOURCES", "Case", "Place", "lay_out", "name_of"]
