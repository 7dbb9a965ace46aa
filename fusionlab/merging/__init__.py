"""Merging methods: each one file with one registered function."""

from fusionlab.merging import simple as simple
from fusionlab.merging.registry import find_method, merge_states, merge_weights, methods

__all__ = ["find_method", "merge_states", "merge_weights", "methods"]
