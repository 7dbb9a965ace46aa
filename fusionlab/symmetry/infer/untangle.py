"""Parameters whose segments are laid out inside of blocks, as segments of their own."""

from __future__ import annotations

from fusionlab.symmetry.infer.dims import Dim, Sum, fresh, resolve, size_of


def untangle(parameters: dict[str, list[Dim]]) -> dict[str, list[Dim]] | None:
    """Parameters laid out as (3, heads, inner) or (groups, queries + 2, inner) as segments of their own.

    What lies inside of one segment need not be the space that lies inside of another.

    Returns:
        Types to start from anew, or None where there are no such parameters.
    """
    found = []

    def rewritten(dim: Dim) -> Dim:
        for position, factor in enumerate(dim[:-1]):
            if isinstance(factor, Sum):
                found.append(dim)
                length = size_of(dim[position + 1 :])
                parts = tuple(fresh(size_of(part) * length) for part in factor.parts)
                return (*fresh(size_of(dim[:position])), Sum(parts))
        only = dim[0] if len(dim) == 1 else None
        if isinstance(only, Sum):
            return (Sum(tuple(rewritten(resolve(part)) for part in only.parts)),)
        return fresh(size_of(dim))

    start = {name: [rewritten(resolve(dim)) for dim in dims] for name, dims in parameters.items()}
    return start if found else None
