"""The key of a model, a digest of all that a blueprint follows from: models of one key have one blueprint."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from torch import Tensor, nn

from fusionlab.symmetry.infer.masks import is_mask

# Numbers of a buffer that are looked at.
_SMALL = 4096


def key_of(model: nn.Module) -> str:
    """A digest of all that a blueprint follows from: class and config, modules, names and shapes, and what is tied."""
    config: Any = getattr(model, "config", None)
    told: dict[str, Any] | None = None
    if hasattr(config, "to_json_string"):
        told = json.loads(config.to_json_string(use_diff=False))
        told = {name: value for name, value in told.items() if name not in ("_name_or_path", "transformers_version")}
    seen: dict[int, str] = {}
    shapes = [
        (name, tuple(tensor.shape), seen.setdefault(id(tensor), name))
        for name, tensor in model.state_dict(keep_vars=True).items()
    ]
    is_told = told is not None
    parts = [(path, _kind(part), _attributes(part, is_told)) for path, part in model.named_modules()]
    if not is_told:
        parts += [(name, "buffer", _numbers(buffer)) for name, buffer in model.named_buffers()]
    return hashlib.sha256(json.dumps([parts, told, shapes], default=str, sort_keys=True).encode()).hexdigest()


def _kind(part: nn.Module) -> str:
    """The class of a module, as one may stand in the place of another, such as another activation."""
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _attributes(part: nn.Module, is_told: bool) -> dict[str, Any]:
    """Plain attributes of a module, such as a stride or a number of heads, and functions that it has, by their names.

    Args:
        part: of torch's, or where no config tells what follows from one, of anybody's.
        is_told: whether a config does.
    """
    if is_told and not type(part).__module__.startswith("torch.nn."):
        return {}
    found = {}
    for name, value in vars(part).items():
        # As loaders mark what they filled.
        if name == "training" or name.startswith("_"):
            continue
        if _is_plain(value):
            found[name] = value
        elif callable(value) and not isinstance(value, nn.Module) and not is_told:
            found[name] = getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__qualname__)
    return found


def _is_plain(value: Any) -> bool:
    """A number or a word, or several."""
    numbers = (bool, int, float, str)
    return isinstance(value, numbers) or (
        isinstance(value, tuple | list) and all(isinstance(one, numbers) for one in value)
    )


def _numbers(buffer: Tensor) -> Any:
    """The numbers of a small buffer that no training moves: whole ones, truth values, masks; else nothing."""
    if buffer.is_meta or not buffer.ndim or buffer.numel() > _SMALL:
        return None
    return buffer.tolist() if not buffer.is_floating_point() or is_mask(buffer) else None
