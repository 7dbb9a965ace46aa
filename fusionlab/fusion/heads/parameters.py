"""The head of a model, apart from its body: which parameters and which layers are it."""

from __future__ import annotations

from typing import Any

from torch import nn

from fusionlab.models import aliases


def head_parameters(model: nn.Module) -> tuple[str, ...]:
    """The names of a model's head: what transformers keeps outside the base model, or what timm calls the classifier.

    Poolers inside the base model (BERT's) belong to the body, those outside (DeBERTa's) to the head. A weight that the
    body shares (a tied output embedding) belongs to the body.

    Args:
        model: of transformers or timm.

    Returns:
        Parameters and buffers by their names in the state, in its order; empty for a bare encoder.
    """
    state = model.state_dict()
    base = base_module(model)
    if base is None:
        within = tuple(f"{name}." for name in classifiers(model))
        return tuple(name for name in state if name.startswith(within))
    if base is model:
        return ()
    prefix = prefix_of(model)
    first = aliases(state)
    shared = {first.get(name, name) for name in state if name.startswith(prefix)}
    return tuple(name for name in state if not name.startswith(prefix) and first.get(name, name) not in shared)


def prefix_of(model: nn.Module) -> str:
    """The beginning of the names of a body's parameters in a whole model, with a point behind; none for bare bodies."""
    base = base_module(model)
    if base is None or base is model:
        return ""
    return next(f"{name}." for name, module in model.named_modules() if module is base)


def base_module(model: nn.Module) -> nn.Module | None:
    """transformers' base model, the model itself where there is none around it; None for other libraries."""
    base = getattr(model, "base_model", None)
    return base if isinstance(base, nn.Module) else None


def classifiers(model: nn.Module) -> list[str]:
    """The names of timm's classifiers."""
    found: Any = getattr(model, "get_classifier", lambda: None)()
    heads = found if isinstance(found, tuple | list) else [found]
    return [
        name for name, module in model.named_modules() if any(module is h for h in heads if isinstance(h, nn.Linear))
    ]
