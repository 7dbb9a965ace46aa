"""Synthetic inputs by which end models are looked at where there are no data."""

from fusionlab.probes.probes import KINDS, probes, takes_text

__all__ = ["KINDS", "probes", "takes_text"]
