"""Synthetic inputs by which end models are looked at where there are no data."""

from fusionlab.probes.probes import KINDS, probes

__all__ = ["KINDS", "probes"]
