"""Users' models in eval mode for a while, every module of them back in its own mode afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_eval_mode(*models: nn.Module) -> Iterator[None]:
    """Models in eval mode while the context lasts.

    Afterwards every module trains that did before: of a model with frozen parts in eval mode, only the others.

    Args:
        models: modified in place.
    """
    modes = {module: module.training for model in models for module in model.modules()}
    try:
        for model in models:
            model.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training
