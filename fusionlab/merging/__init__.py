"""Merging methods: each one file with one registered function."""

from fusionlab.merging import circuit as circuit
from fusionlab.merging import dare as dare
from fusionlab.merging import fisher as fisher
from fusionlab.merging import karcher as karcher
from fusionlab.merging import ot as ot
from fusionlab.merging import regmean as regmean
from fusionlab.merging import simple as simple
from fusionlab.merging import slerp as slerp
from fusionlab.merging import soup as soup
from fusionlab.merging import stock as stock
from fusionlab.merging import task_arithmetic as task_arithmetic
from fusionlab.merging import ties as ties
from fusionlab.merging.registry import find_method, merge_states, merge_weights, methods

__all__ = ["find_method", "merge_states", "merge_weights", "methods"]
