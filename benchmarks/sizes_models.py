"""The end models of the tables of models of different sizes, trained once and kept in a folder."""

from __future__ import annotations

from pathlib import Path

from digits_rows import digits_model
from torch import nn

import fusionlab

EPOCHS = 30


def end_model(folder: Path, seed: int, size: tuple[int, int]) -> nn.Module:
    """An end model of the demo's config after 30 passes over its images, trained where it is not in the folder.

    Args:
        folder: of all these models.
        seed: of its weights and of the order of its images.
        size: width and number of layers.
    """
    width, layers = size
    place = folder / f"{width}x{layers}_seed_{seed}"
    if not place.exists():
        fusionlab.save(digits_model(seed, width, layers=layers, epochs=EPOCHS), place)
    model: nn.Module = fusionlab.load(place)
    return model.eval()
