"""Grids of merges: groups of end models, methods, matchings and seeds, cell by cell, in one table."""
