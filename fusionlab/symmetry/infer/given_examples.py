"""Example inputs as somebody gives them: by name, in order, or one tensor alone."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fusionlab.symmetry.blueprint import SymmetryError

_EXPECTED = "expected a batch of at least two as tensors by the forward's argument names"


def given_example(model: nn.Module, given: Any) -> dict[str, Tensor]:
    """The tensors of an example by the names of the forward's arguments.

    Args:
        model: any module.
        given: tensors or numpy arrays by name, in the order of the forward's arguments, or one alone.

    Raises:
        SymmetryError: something else, or an empty batch.
    """
    if not isinstance(given, Mapping):
        values = list(given) if isinstance(given, tuple | list) else [given]
        names = [name for name, one in inspect.signature(model.forward).parameters.items() if one.kind in _NAMED]
        if len(values) > len(names):
            raise SymmetryError(
                f"{len(values)} example inputs were given in order, and a {type(model).__name__} names {len(names)}; "
                f"{_EXPECTED}"
            )
        given = dict(zip(names, values, strict=False))
    found: dict[str, Tensor] = {}
    for name, value in given.items():
        x = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        if not isinstance(x, Tensor):
            raise SymmetryError(f"the example input {name!r} is a {type(value).__name__}; {_EXPECTED}")
        if x.numel() == 0:
            raise SymmetryError(f"the example input {name!r} is empty, of shape {tuple(x.shape)}; {_EXPECTED}")
        found[name] = x
    return found


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def refuse_kind(model: nn.Module) -> None:
    """Refuse a module whose parameters are not there yet, or which computes without them, in one sentence."""
    name = type(model).__name__
    if any(is_lazy(p) for p in (*model.parameters(), *model.buffers())):
        raise SymmetryError(f"a {name} has parameters without shapes; expected it to be run once on a batch before")
    if isinstance(model, torch.jit.ScriptModule):
        raise SymmetryError(f"a {name} is a scripted module, which cannot be traced; expected the module it is made of")
    if any(".quantized" in type(part).__module__ for part in model.modules()):
        raise SymmetryError(f"a {name} has quantised layers; expected the module before it was quantised")
