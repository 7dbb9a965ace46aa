"""One way to run any supported model on a batch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

LABELS = "labels"


def forward(model: nn.Module, batch: Mapping[str, Tensor]) -> Any:
    """Run `model` on the inputs of `batch`, in the model's dtype; labels, if there are any, are left out.

    Args:
        model: a transformers model (called with keywords) or any other module, timm's among them
            (called with the batch's inputs in order).
        batch: inputs by name, such as ``pixel_values`` of shape ``(batch, channels, height, width)``
            or ``input_ids`` of shape ``(batch, tokens)``.

    Returns:
        Whatever the model returns.
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    inputs = {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in batch.items()
        if name != LABELS
    }
    if hasattr(model, "main_input_name"):
        return model(**inputs)
    return model(*inputs.values())


def main_output(output: Any) -> Tensor:
    """The tensor that a model is used for: its logits, or the last hidden state of a bare encoder."""
    if isinstance(output, Tensor):
        return output
    for name in ("logits", "last_hidden_state"):
        value = getattr(output, name, None)
        if value is not None:
            return value
    if isinstance(output, tuple):
        # timm's distilled models return one set of logits for each token they classify by.
        return torch.stack([element for element in output if isinstance(element, Tensor)]).mean(0)
    raise TypeError(f"a model returned {type(output).__name__}, which holds neither logits nor hidden states")


def logits(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits of `model` on `batch`, of shape ``(batch, ..., classes)``."""
    return main_output(forward(model, batch))
