"""Draws docs/images/head_rotation.png: what a rotation inside a head changes, and what it does not.

``python -m tests.site.head_rotation``. Two heads that compute the same scores, two coordinates wide so that they can be
drawn: the keys and queries of one, those of the other, and their means before and after matching, which
`fusionlab.matching.groups` solves.
"""

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from fusionlab.matching.groups import geometry
from fusionlab.symmetry.groups import Orthogonal
from tests.site.hooks import ROOT

ANGLE = 2.2
QUERY, KEY = "#00796b", "#e65100"


def heads() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Queries and keys of five tokens, of shape ``(tokens, 2)``, in two bases: the second head is the first, turned."""
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(5, 2, generator=generator, dtype=torch.float64) + torch.tensor([0.9, 0.2])
    keys = 0.6 * queries + 0.5 * torch.randn(5, 2, generator=generator, dtype=torch.float64)
    angle = torch.tensor(ANGLE, dtype=torch.float64)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    return (queries, keys), (queries @ turn.T, keys @ turn.T)


def matched(source: tuple[Tensor, Tensor], anchor: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The source's queries and keys after the rotation that brings them closest to the anchor's (Procrustes)."""
    correlation = sum(b.T @ a for a, b in zip(source, anchor, strict=True))
    rotation, _ = geometry(Orthogonal(2)).closest(correlation)
    return source[0] @ rotation.T, source[1] @ rotation.T


def scores(head: tuple[Tensor, Tensor]) -> Tensor:
    """The attention scores that a head computes, of shape ``(tokens, tokens)``."""
    return head[0] @ head[1].T


def mean(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return (one[0] + other[0]) / 2, (one[1] + other[1]) / 2


def main() -> None:
    """Draw the four heads above, and the scores of each below."""
    first, second = heads()
    panels = {
        "head of model A": first,
        "head of model B": second,
        "mean, unmatched": mean(first, second),
        "mean, B matched to A": mean(first, matched(second, first)),
    }
    figure, axes = plt.subplots(2, 4, figsize=(10, 5), height_ratios=(1, 1), layout="constrained")
    limit = float(max(x.abs().max() for head in panels.values() for x in head)) * 1.15
    strongest = float(scores(first).abs().max())
    for column, (title, head) in enumerate(panels.items()):
        above, below = axes[:, column]
        for points, colour, name in ((head[0], QUERY, "queries"), (head[1], KEY, "keys")):
            above.quiver(
                *torch.zeros(2, 5),
                *points.T,
                angles="xy",
                scale_units="xy",
                scale=1,
                color=colour,
                width=0.012,
                label=name,
            )
        above.set(title=title, xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=[], yticks=[])
        below.imshow(scores(head), cmap="PuOr", vmin=-strongest, vmax=strongest)
        below.set(xticks=[], yticks=[], xlabel="tokens' keys", ylabel="tokens' queries" if column == 0 else "")
    axes[0, 0].legend(loc="lower left", fontsize=8)
    axes[0, 0].set_ylabel("queries and keys, 2 wide")
    figure.savefig(ROOT / "docs" / "images" / "head_rotation.png", dpi=100)


if __name__ == "__main__":
    main()
