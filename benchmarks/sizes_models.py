"""The end models of the tables of models of different sizes, trained once and kept in a folder."""

from __future__ import annotations

from pathlib import Path

from digits_models import kept_model
from torch import nn

EPOCHS = 30


def end_model(folder: Path, seed: int, size: tuple[int, int], classes: tuple[int, ...] | None = None) -> nn.Module:
    """An end model of the demo's config after 30 passes over its images, trained where it is not in the folder.

    Args:
        folder: of all these models.
        seed: of its weights and of the order of its images.
        size: width and number of layers.
        classes: digits that it learns; all if None.
    """
    width, layers = size
    return kept_model(folder, seed, width=width, layers=layers, classes=classes, epochs=EPOCHS)
