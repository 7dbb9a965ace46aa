"""Synthetic inputs by which end models are looked at where there are no data, or few."""

from fusionlab.probes.beside import inputs_like
from fusionlab.probes.probes import KINDS, probes, takes_text

__all__ = ["KINDS", "inputs_like", "probes", "takes_text"]
