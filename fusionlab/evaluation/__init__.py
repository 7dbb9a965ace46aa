"""Evaluation of merges: scores, barriers, distances, results and their presentation."""
