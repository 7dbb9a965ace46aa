"""The symmetry of any model, found from its traced graph."""
