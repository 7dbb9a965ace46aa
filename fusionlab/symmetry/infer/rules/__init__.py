"""The types of what operations of aten return, a family in each file; importing this package registers all of them.

A rule is one function that `fusionlab.symmetry.infer.values.rule` registers under the operations' names. An
operation without a rule freezes what goes into it.
"""

from fusionlab.symmetry.infer.rules import (
    convolutions,
    indexing,
    norms,
    pointwise,
    products,
    reductions,
    shapes,
)

__all__ = ["convolutions", "indexing", "norms", "pointwise", "products", "reductions", "shapes"]
