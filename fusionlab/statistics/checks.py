"""Refusals of statistics that nobody can have gathered, as files get damaged, or that are no numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.finite import all_finite
from fusionlab.statistics.statistics import Activations, Fisher, Grams, LinearMap, Statistics


def refuse_impossible(found: Statistics) -> None:
    """Refuse statistics whose fields do not fit each other, or whose numbers cannot be sums of what they stand for.

    Args:
        found: read from a file, its fields of any type.

    Raises:
        InputError: names the field.
    """
    for name in ("architecture", "basis"):
        _require(isinstance(getattr(found, name), str), found, name, "text")
    _require(_is_count(found.examples), found, "examples", "a number from 0")
    _require(_texts(found.settings), found, "settings", "text by name")
    if isinstance(found, Grams):
        _refuse_grams(found)
    elif isinstance(found, Fisher):
        for name, diagonal in found.diagonal.items():
            _require(_finite(diagonal) and bool((diagonal >= 0).all()), found, name, "finite numbers from 0")
    elif isinstance(found, Activations):
        _refuse_activations(found)


def refuse_not_finite(found: Statistics) -> None:
    """Refuse statistics that were gathered where a model computes no numbers.

    Args:
        found: Fisher information or Gram matrices; others pass.

    Raises:
        InputError: names the first parameter.
    """
    tensors = found.diagonal if isinstance(found, Fisher) else found.matrices if isinstance(found, Grams) else {}
    for name, tensor in tensors.items():
        if not all_finite(tensor):
            raise InputError(
                f"the {found.kind} statistics are not finite at {name}; expected a model whose outputs and losses on "
                "the data are numbers, and labels that are"
            )


def _refuse_grams(found: Grams) -> None:
    _require(
        isinstance(found.rows, Mapping) and found.rows.keys() == found.matrices.keys(), found, "rows", "one a matrix"
    )
    for name, matrix in found.matrices.items():
        is_square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and len(matrix) > 0
        _require(is_square and _finite(matrix), found, name, "a square matrix of finite numbers")
        # Rounding leaves the sum of squares of a feature at 0 or above it, always.
        _require(bool((matrix.diagonal() >= 0).all()), found, name, "sums of squares on the diagonal")
        _require(_is_count(found.rows[name]), found, f"rows of {name}", "a number from 0")
    for name, linear in _maps(found).items():
        _require(linear.inputs in found.matrices, found, name, "inputs whose Gram matrix is there")


def _refuse_activations(found: Activations) -> None:
    _require(isinstance(found.drawn, str), found, "drawn", "text")
    maps = _maps(found)
    for part in (found.inputs, found.outputs):
        _require(part.keys() == maps.keys(), found, "maps", "inputs and outputs of each")
        for name, sample in part.items():
            fits = sample.ndim == 2 and sample.shape[1] == found.inputs[name].shape[-1]
            _require(fits and _finite(sample), found, name, "finite numbers of shape (features, samples)")
    for name, sample in found.gradients.items():
        fits = name in found.outputs and sample.shape == found.outputs[name].shape
        _require(fits and _finite(sample), found, name, "gradients of the shape of the outputs")


def _maps(found: Grams | Activations) -> Mapping[str, LinearMap]:
    for name, linear in found.maps.items():
        is_sound = isinstance(linear.inputs, str) and linear.dim in (0, 1) and isinstance(linear.bias, str | None)
        _require(is_sound, found, name, "an input, a dimension of 0 or 1, and a bias or none")
    return found.maps


def _require(holds: bool, found: Statistics, name: str, expected: str) -> None:
    if not holds:
        raise InputError(f"the {found.kind} statistics are damaged at {name}; expected {expected}")


def _finite(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and all_finite(tensor)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
