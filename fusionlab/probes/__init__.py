"""Synthetic inputs by which end models are looked at where there are no data, or few."""

from fusionlab.probes.beside import inputs_like
from fusionlab.probes.probes import KINDS, in_words, probes, takes_text, teach

__all__ = ["KINDS", "in_words", "inputs_like", "probes", "takes_text", "teach"]
