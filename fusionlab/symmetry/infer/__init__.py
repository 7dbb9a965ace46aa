"""The symmetry of a model that nobody described: inferred from its traced graph and shown on random parameters.

`trace` makes the graph, `interpreter` reads it with types in place of numbers (`dims`, `rules`), `search` tries groups
from large to small, `blueprint` puts down what passed. Large models of transformers are traced as a small one of the
same structure (`shrink`), whose blueprint is then mapped onto the real names and shapes (`grow`). What was inferred is
kept on the disk for later processes (`kept`).
"""
