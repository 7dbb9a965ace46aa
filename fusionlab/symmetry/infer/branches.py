"""Branches on data, where a forward follows the values of its tensors: a trace shows the one that was taken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.overrides import TorchFunctionMode

# What makes a Python value of a tensor.
_TOLD = {
    Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.__contains__, Tensor.item,
    Tensor.tolist,
}  # fmt: skip
_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
# What transformers' models share asks for masks and checks inputs; what layers do is said in the models' own files.
_SHARED = Path(transformers.__file__).parent


class Branches(TorchFunctionMode):
    """While active, notes where Python asks for a tensor's value.

    Attributes:
        taken: by place, such as ``modeling_bert.py:88``, the truth values that were found there, in order; other
            values are None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, list[bool | None]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = _listed(args[0]) if func is Tensor.tolist else func(*args, **(kwargs or {}))
        if func in _TOLD and (place := _place()) is not None:
            found = self.taken.setdefault(place, [])
            value = out if isinstance(out, bool) else None
            found += [] if value in found else [value]
        return out

    def told(self) -> tuple[str, ...]:
        """A sentence for each place."""
        return tuple(
            f"the model's code looks at a value at {place}"
            + ("" if None in values else f", which was {' and '.join(map(str, values))}")
            + ": what it would do for another was not tried"
            for place, values in self.taken.items()
        )


def _listed(x: Tensor) -> Any:
    """A tensor's numbers in nested lists, one at a time: what a trace wraps gives them in no other way."""
    return x.item() if x.ndim == 0 else [_listed(part) for part in x]


def _place() -> str | None:
    """The line of the model's code that is running, neither torch's nor fusionlab's; None in what models share."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(_SHARED) and not path.is_relative_to(_SHARED / "models"):
        return None
    return f"{path.name}:{frame.f_lineno}"
