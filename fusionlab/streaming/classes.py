"""The classes that folders of files are of, without weights."""

from __future__ import annotations

from fusionlab.checkpoints.weightless import Weightless, WeightlessOfTransformers, weightless, weightless_timm
from fusionlab.streaming.stored import StoredModel


def class_of(model: StoredModel) -> WeightlessOfTransformers | None:
    """The class of a folder of transformers, and what of its files becomes each parameter.

    Args:
        model: as it lies on the disk.

    Returns:
        None where its files hold other parameters than the class, or in a way that is not known to come back as it was.

    Raises:
        InputError: an unknown class, or a configuration that it refuses.
    """
    return weightless(model.config, model.location, _shapes(model))


def made_by(model: StoredModel) -> Weightless | None:
    """The same of a folder of transformers or timm; arguments and errors are those of `class_of`."""
    return weightless_timm(model.config, model.location, _shapes(model)) if model.format == "timm" else class_of(model)


def _shapes(model: StoredModel) -> dict[str, tuple[int, ...]]:
    return {name: stored.shape for name, stored in model.tensors.items()}
