"""The picture of docs/sizes.md: a small vision transformer's weights, and the same in a larger architecture.

python benchmarks/size_figure.py docs/images/grown.png
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import torch
from matplotlib import pyplot
from torch import Tensor

import fusionlab
from fusionlab.atomic import atomic_file

# By what is shown: the parameter, and what its rows and columns are.
SHOWN = {
    "query": ("attention.q_proj.weight", "heads", "stream"),
    "output of attention": ("attention.o_proj.weight", "stream", "heads"),
    "first map of the units": ("mlp.fc1.weight", "units", "stream"),
}
LAYERS = ("layer 0", "layer 1")


def models() -> tuple[Any, Any]:
    """A model of one layer with random numbers, and the same grown: wider, with more heads, units and layers."""
    from transformers import ViTConfig, ViTForImageClassification  # noqa: PLC0415 (slow; not for --help)

    torch.manual_seed(0)
    shape: dict[str, Any] = {"image_size": 8, "patch_size": 2, "num_channels": 1}
    small = ViTForImageClassification(
        ViTConfig(hidden_size=24, num_attention_heads=3, intermediate_size=36, num_hidden_layers=1, **shape)
    )
    like = ViTConfig(hidden_size=40, num_attention_heads=4, intermediate_size=56, num_hidden_layers=2, **shape)
    return small, fusionlab.grow(small, like)


def weights(model: Any, name: str) -> list[Tensor]:
    """A parameter of every layer."""
    return [layer.get_parameter(name).detach() for layer in model.vit.layers]


def main(path: Path) -> None:
    small, grown = models()
    figure, panels = pyplot.subplots(3, 3, figsize=(8.4, 8.8), layout="constrained")
    for row, (title, (name, rows, columns)) in enumerate(SHOWN.items()):
        tensors = [*weights(small, name), *weights(grown, name)]
        most = max(float(tensor.abs().max()) for tensor in tensors)
        heads = ("the small model", *(f"grown, {layer}" for layer in LAYERS))
        for panel, tensor, head in zip(panels[row], tensors, heads, strict=True):
            shown = tensor.masked_fill(tensor == 0, torch.nan)
            panel.set_facecolor("#e3e6ea")
            panel.imshow(shown, cmap="RdBu", vmin=-most, vmax=most, interpolation="nearest")
            panel.set_xlim(-0.5, 39.5)
            panel.set_ylim(55.5 if rows == "units" else 39.5, -0.5)
            height, width = tensor.shape
            for edge in ("top", "right", "left", "bottom"):
                panel.spines[edge].set_visible(False)
            panel.add_patch(pyplot.Rectangle((width - 0.5, -0.5), 99, 99, color="white"))
            panel.add_patch(pyplot.Rectangle((-0.5, height - 0.5), 99, 99, color="white"))
            panel.set_xticks([0, width - 1], ["1", str(width)])
            panel.set_yticks([0, height - 1], ["1", str(height)])
            panel.set_xlabel(columns)
            panel.set_ylabel(f"{title}\n{rows}" if panel is panels[row][0] else rows)
            if row == 0:
                panel.set_title(head, fontsize=11)
    figure.suptitle("One function in two architectures: grey is zero", fontsize=12)
    with atomic_file(path, overwrite=True) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
