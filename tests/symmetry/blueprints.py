"""Blueprints that no model has: spaces in spaces, and spaces that cross."""

import torch
from torch import Tensor

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import Along, Concat, Per
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Orthogonal, Permutation

from .models import generator


def nested_blueprint() -> Blueprint:
    """Blocks of blocks, segments and shared elements: more than any one architecture needs.

    ``groups`` permutes 2 blocks, ``members`` 3 blocks within each of them (another permutation in each group);
    ``each`` has an element for every member of every group, ``shared`` one for every group.
    """
    b = BlueprintBuilder("nested")
    groups = b.space("groups", Permutation(2), role="heads")
    members = b.space("members", Permutation(3), role="heads.queries", index=("groups",))
    each = b.space("each", Invertible(2), role="attention.qk", index=("groups", "members"))
    shared = b.space("shared", Orthogonal(2), role="attention.vo", index=("groups",))
    flat = b.space("flat", Permutation(5), role="residual")

    def blocks(inner: Along) -> Per:
        return b.per(groups, b.per(members, inner))

    fused = Concat(blocks(each), blocks(each).dual(), flat)
    b.parameter("each.primal", blocks(each), flat)
    b.parameter("each.dual", blocks(each).dual(), flat)
    b.parameter("shared", blocks(shared), None, b.per(groups, members))
    b.parameter("fused.primal", fused, blocks(shared))
    b.parameter("fused.dual", fused.dual(), blocks(shared))
    return b.build()


def nested_state(seed: int = 0) -> dict[str, Tensor]:
    """Random parameters for `nested_blueprint`."""
    draw = generator(seed)
    shapes = {"each.primal": (12, 5), "each.dual": (12, 5), "shared": (12, 4, 6)}
    shapes |= {"fused.primal": (29, 12), "fused.dual": (29, 12)}
    return {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}


def crossed_blueprint() -> Blueprint:
    """Blocks in rows and columns, permuted independently: an element for each place, one for each column."""
    b = BlueprintBuilder("crossed")
    rows = b.space("rows", Permutation(2), role="heads")
    columns = b.space("columns", Permutation(3), role="heads.queries")
    each = b.space("each", Invertible(2), role="attention.qk", index=("rows", "columns"))
    column = b.space("column", Invertible(2), role="attention.vo", index=("columns",))
    for name, inner in (("each", each), ("column", column)):
        b.parameter(f"{name}.primal", b.per(rows, b.per(columns, inner)), None)
        b.parameter(f"{name}.dual", b.per(rows, b.per(columns, inner)).dual(), None)
    return b.build()


def crossed_state(seed: int = 0) -> dict[str, Tensor]:
    """Random parameters for `crossed_blueprint`."""
    draw = generator(seed)
    return {name: torch.randn(12, 4, generator=draw, dtype=torch.float64) for name in crossed_blueprint().parameters}
