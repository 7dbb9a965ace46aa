"""One size for models of several."""

import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any

from torch import nn

from fusionlab.api.given import Source, module_of
from fusionlab.growing import grown, grown_to_one_size, shrunk, told
from fusionlab.inputs import Batches, Inputs
from fusionlab.polish import PolishOptions, polish
from fusionlab.types import Model


def grow(model: Model | Source, like: Any, data: Batches | None = None, fill: bool = False) -> Model:
    """The same function in a larger architecture: more width, layers, heads, units, groups or experts.

    That outputs are equal is checked in float64 on random inputs before anything is returned. Layers of another length
    of stack go where activations are most alike, in order; without data each to the end of its share of the stack.

    Args:
        model: of any architecture, or the path of its checkpoint; not modified.
        like: a model of the same class that is at least as large in every dimension, the path of one, or a config.
        data: batches of inputs that both take, labels not needed; `like` must be a model then.
        fill: whether what is new and changes nothing is taken from `like` in the small model's basis, and not zero: for
            models that will be matched and merged. `like` must be a model then. `align` and `fuse` do it by themselves.

    Returns:
        A new model of the larger architecture with the labels and dtypes of the small one; its norm gains and layer
        scales are folded where the residual stream got wider and may be rotated, or where it is filled.

    Raises:
        InputError: what cannot be grown, with the reason (docs/sizes.md lists them).
        SymmetryError: an architecture whose symmetry is not found.
    """
    small: Model = module_of(model, "model")
    larger = module_of(like, "like") if isinstance(like, nn.Module | str | PathLike) else like
    return grown(small, larger, data, fill).model


def shrink(model: Model | Source, like: Any, data: Batches | None = None, steps: int = 300, seed: int = 0) -> Model:
    """A model in a smaller architecture: less width, layers, heads or units, and as much of the function as fits.

    What is kept of each space is chosen by weights; a model that was grown from the smaller architecture comes back
    exactly. With data the large model is distilled into what is left.

    Args:
        model: of any architecture that `grow` takes, or the path of its checkpoint; not modified.
        like: a model of the same class that is larger in no dimension, the path of one, or a config. Its numbers are
            not looked at.
        data: batches of inputs that the shrunk model learns from the large one on, labels not needed; nothing is
            learned without.
        steps: of learning, at least 1.
        seed: of the order of the inputs.

    Returns:
        A new model of the smaller architecture with the labels and the main dtype of the large one.

    Raises:
        InputError: what cannot be shrunk, with the reason (docs/sizes.md lists them).
        SymmetryError: an architecture whose symmetry is not found.
    """
    large: Model = module_of(model, "model")
    smaller = module_of(like, "like") if isinstance(like, nn.Module | str | PathLike) else like
    found = shrunk(large, smaller).model
    return found if data is None else polish(found, [large], data, PolishOptions(steps=steps, seed=seed))


def of_one_size(models: Sequence[Model], inputs: Inputs | None, fill: bool, like: Any = None) -> list[Model]:
    """The models, those that are smaller than another grown; a warning says what was grown.

    Args:
        models: not modified.
        inputs: to find where layers go by.
        fill: whether they will be matched, see `grown_to_one_size`.
        like: a model, the path of one, or a config that all become as large as; the largest of all if None.

    Raises:
        InputError: models of sizes that cannot become one.
    """
    named = {f"model {index}": model for index, model in enumerate(models)}
    larger = module_of(like, "like") if isinstance(like, nn.Module | str | PathLike) else like
    growths = grown_to_one_size(named, None if inputs is None else inputs.shared, fill, larger)
    if growths:
        warnings.warn(f"{told(growths)}.", stacklevel=3)
    return [growths[name].model if (name := f"model {i}") in growths else model for i, model in enumerate(models)]
