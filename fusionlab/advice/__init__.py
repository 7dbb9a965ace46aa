"""Advice on models that are to be merged: told from their weights alone, before anything is run."""

from fusionlab.advice.advice import HEADS, Advice, advice_on, table_lines
from fusionlab.advice.choosing import AUTO, Choice, choose, choose_stored, read_weights
from fusionlab.advice.naming import of_one_naming
from fusionlab.advice.situations import CASES
from fusionlab.advice.tensors import Weights, module_weights, stored_weights

__all__ = [
    "AUTO",
    "CASES",
    "HEADS",
    "Advice",
    "Choice",
    "Weights",
    "advice_on",
    "choose",
    "choose_stored",
    "module_weights",
    "of_one_naming",
    "read_weights",
    "stored_weights",
    "table_lines",
]
