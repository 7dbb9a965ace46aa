"""Merging methods: each one file with one registered function, found by itself when it is asked for."""

from fusionlab.merging.registry import find_method, merge_states, methods

__all__ = ["find_method", "merge_states", "methods"]
