"""One way to run any supported model on a batch."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fusionlab.errors import InputError
from fusionlab.types import Batch

LABELS = "labels"
# The label of what is unknown, as transformers has it.
IGNORED = -100
# What a model is used for, by the name of its output, first come first.
MAIN = (
    "logits",
    "start_logits",
    "logits_per_image",
    "image_embeds",
    "text_embeds",
    "reconstruction",
    "last_hidden_state",
)


def forward(model: nn.Module, batch: Batch) -> Any:
    """Run `model` on the inputs of `batch`, in the model's dtype; labels, if there are any, are left out.

    Args:
        model: a transformers model (called with keywords) or any other module, timm's among them
            (called with the batch's inputs in order).
        batch: inputs by name, such as ``pixel_values`` of shape ``(batch, channels, height, width)``
            or ``input_ids`` of shape ``(batch, tokens)``.

    Returns:
        Whatever the model returns.

    Raises:
        InputError: tokens that the model has no embeddings for, or more of them than it has positions.
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    inputs = {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in batch.items()
        if name != LABELS
    }
    try:
        return model(**inputs) if hasattr(model, "main_input_name") else model(*inputs.values())
    except (IndexError, RuntimeError, ValueError) as error:
        # Looked at now only: models without a table of positions read longer inputs than they were trained on.
        _refuse_too_long(model, inputs, error)
        if isinstance(error, IndexError):
            # On a GPU each look at values would wait for it, and inside a vmap there is nothing to look at.
            _refuse_unknown_tokens(model, inputs, error)
        raise


def _refuse_too_long(model: nn.Module, inputs: Batch, error: Exception) -> None:
    config = getattr(model, "config", None)
    most = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    for name in ("input_ids", "decoder_input_ids"):
        tokens = inputs.get(name)
        if isinstance(most, int) and tokens is not None and tokens.ndim > 1 and tokens.shape[1] > most:
            raise InputError(
                f"the data has inputs of {tokens.shape[1]} tokens, but the model has positions for {most}; expected "
                f"shorter ones (data.max_length at most {most})"
            ) from error


def _refuse_unknown_tokens(model: nn.Module, inputs: Batch, error: IndexError) -> None:
    embeddings = getattr(model, "get_input_embeddings", lambda: None)()
    tokens = inputs.get("input_ids")
    if isinstance(embeddings, nn.Embedding) and tokens is not None and len(tokens):
        largest = int(tokens.max())
        if largest >= embeddings.num_embeddings or int(tokens.min()) < 0:
            raise InputError(
                f"the data has the token {largest}, but the model has embeddings for {embeddings.num_embeddings}; "
                f"expected the tokenizer that the model was trained with"
            ) from error


def main_output(output: Any) -> Tensor:
    """The tensor that a model is used for: its logits or embeddings, or the last hidden state of a bare encoder."""
    if isinstance(output, Tensor):
        return output
    for name in MAIN:
        value = getattr(output, name, None)
        if value is not None:
            return value
    if isinstance(output, tuple):
        # timm's distilled models return one set of logits for each token they classify by.
        return torch.stack([element for element in output if isinstance(element, Tensor)]).mean(0)
    raise TypeError(f"a model returned {type(output).__name__}, which holds none of {', '.join(MAIN)}")


def logits(model: nn.Module, batch: Batch) -> Tensor:
    """Logits of `model` on `batch`, of shape ``(batch, ..., classes)``."""
    return main_output(forward(model, batch))


class InFloat64(TorchFunctionMode):
    """While active, float64 stays float64 where a model's code asks for float32, as many norms and softmaxes do.

    Without it a check in float64 of such a model can be no finer than float32. Integers that are made float become
    float64 as well, since rotary codes multiply positions with frequencies, and a product takes one type only.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.float and args[0].dtype in (torch.float64, torch.int64):
            # A copy as a conversion makes one: code that pairs numbers as complex ones needs even strides.
            return args[0].to(torch.float64, copy=True, memory_format=torch.contiguous_format)
        if args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            kwargs = {name: torch.float64 if value is torch.float32 else value for name, value in kwargs.items()}
        return func(*args, **kwargs)


def take_plain_products(model: nn.Module, attention: bool = False) -> None:
    """Make a model compute by operations that every dtype has, in place: the fused product of experts has no float64.

    Args:
        model: of transformers; any other is left as it is.
        attention: attention step by step too, which alone returns its maps.
    """
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            config._experts_implementation = "batched_mm"
            if attention:
                config._attn_implementation = "eager"
