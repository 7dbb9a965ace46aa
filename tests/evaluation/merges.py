"""Merges that verdicts are about."""

from fusionlab.evaluation.results import UNMATCHED

PLAIN, PAPER, WEIGHTS = ("simple", UNMATCHED), ("simple", "paper"), ("simple", "weights")
