"""Statistics that one pass over data gives, each tied to the basis it was measured in."""

from fusionlab.statistics.statistics import Activations, Fisher, Grams, LinearMap, Statistics, basis_of

__all__ = ["Activations", "Fisher", "Grams", "LinearMap", "Statistics", "basis_of"]
