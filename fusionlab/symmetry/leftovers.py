"""Leftovers of a run: what modules keep for the next one, and what it was computed from may have changed since."""

from torch import Tensor, nn

# Biases of attention, by device, that LeViT, EfficientFormer and TinyViT compute from their weights in the first call
# in eval mode, and look at in later ones.
KEPT_BIASES = "attention_bias_cache"


def forget(model: nn.Module) -> None:
    """Drop what a model's modules keep of their weights, and the graphs behind states that they keep.

    Without it a model that has run computes with what its former weights gave, and one whose recurrent states have
    gradients (RecurrentGemma) cannot be copied.

    Args:
        model: modified in place; it computes what its weights say.
    """
    for module in model.modules():
        own = vars(module)
        if kept := own.get(KEPT_BIASES):
            kept.clear()
        for name, value in own.items():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                own[name] = value.detach()
