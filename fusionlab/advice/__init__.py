"""Advice on models that are to be merged: told from weights, and by a look at inputs where these leave it open."""

from fusionlab.advice.advice import HEADS, Advice, advice_on, looked_at, table_lines
from fusionlab.advice.agreement import INPUTS, Agreement, agreement_of
from fusionlab.advice.choosing import AUTO, Choice, choose, choose_stored, read_weights
from fusionlab.advice.naming import of_one_naming
from fusionlab.advice.situations import CASES
from fusionlab.advice.tensors import Weights, module_weights, stored_weights

__all__ = [
    "AUTO",
    "CASES",
    "HEADS",
    "INPUTS",
    "Advice",
    "Agreement",
    "Choice",
    "Weights",
    "advice_on",
    "agreement_of",
    "choose",
    "choose_stored",
    "looked_at",
    "module_weights",
    "of_one_naming",
    "read_weights",
    "stored_weights",
    "table_lines",
]
