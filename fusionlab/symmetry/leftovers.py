"""Leftovers of a run: what modules keep for the next one, and what it was computed from may have changed since."""

from torch import Tensor, nn

# Biases of attention, by device, that LeViT, EfficientFormer and TinyViT compute from their weights in the first call
# in eval mode, and look at in later ones.
KEPT_BIASES = "attention_bias_cache"


def forget(model: nn.Module, states: bool = True) -> None:
    """Drop what a model's modules keep of their weights, and the graphs behind states that they keep.

    Without it a model that has run computes with what its former weights gave, and one whose recurrent states have
    gradients (RecurrentGemma) cannot be copied.

    Args:
        model: modified in place; it computes what its weights say.
        states: whether graphs are dropped too, as only a run with gradients leaves some.
    """
    for module in model.modules():
        own = vars(module)
        if kept := own.get(KEPT_BIASES):
            kept.clear()
        if states:
            graphs = [name for name, value in own.items() if type(value) is Tensor and value.grad_fn is not None]
            own.update({name: own[name].detach() for name in graphs})
