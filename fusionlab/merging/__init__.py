"""Merging methods: each one file with one registered function, found by itself when it is asked for."""

from fusionlab.merging.registry import find_method, methods
from fusionlab.merging.states import check_merge, merge_states

__all__ = ["check_merge", "find_method", "merge_states", "methods"]
