"""One way to run any supported model on a batch."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fusionlab.decoder_inputs import decoder_start, shifted
from fusionlab.dtypes import widest
from fusionlab.errors import InputError, first_line
from fusionlab.places import places
from fusionlab.sentences import sentence
from fusionlab.types import Batch

LABELS = "labels"
# The label of what is unknown, as transformers has it.
IGNORED = -100
# Of answers to questions: where they begin and where they end, over tokens; and the logit of padding, which is neither.
ENDS = ("start_logits", "end_logits")
_NOWHERE = -1e4
# Of images that come with the texts of all classes that they may belong to: what holds these.
PIXELS, TOKENS = "pixel_values", "input_ids"
_CLASS_TEXTS = (TOKENS, "attention_mask", "token_type_ids")
# Of a decoder: what it writes, and which of that counts.
DECODER_TOKENS, DECODER_MASK = "decoder_input_ids", "decoder_attention_mask"
# What a decoder reads of its own, so that nothing is made of labels.
_DECODED = (DECODER_TOKENS, "decoder_inputs_embeds")
# What a model is used for, by the name of its output, first come first.
MAIN = (
    "logits",
    "logits_per_image",
    "image_embeds",
    "text_embeds",
    "reconstruction",
    "last_hidden_state",
)


def forward(model: nn.Module, batch: Batch) -> Any:
    """Run `model` on the inputs of `batch`, in the model's dtype; labels, if there are any, are left out.

    A decoder reads the labels one place later where there is nothing else for it (`with_decoder_tokens`).

    A model of several dtypes that does not run in them runs in the widest, and stays as it is.

    Args:
        model: a transformers model (called with keywords) or any other module, timm's among them (called with
            keywords too where its forward names all of the batch's inputs, else with these in order).
        batch: inputs by name, such as ``pixel_values`` of shape ``(batch, channels, height, width)``
            or ``input_ids`` of shape ``(batch, tokens)``; beside images also ``(batch, classes, tokens)``, the texts
            of all classes, which are the same for each image and are read once.

    Returns:
        Whatever the model returns.

    Raises:
        InputError: tokens that the model has no embeddings for, or more of them than it has positions.
    """
    # Merging files, which runs nothing, need not wait for what symmetry imports.
    from fusionlab.symmetry.leftovers import forget  # noqa: PLC0415

    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    inputs = {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in with_decoder_tokens(model, batch).items()
        if name != LABELS
    }
    if class_texts(inputs) is not None:
        inputs = {name: value[0] if name in _CLASS_TEXTS else value for name, value in inputs.items()}
    forget(model, states=False)
    # Keys and values are for a next token, which nothing asks for, and would stay in memory while all layers run.
    plain: dict[str, Any] = {"use_cache": False} if takes(model, "use_cache") else {}
    if takes(model, "position_ids"):
        plain |= places(getattr(model, "config", None), inputs)
    try:
        return _called(model, inputs, plain)
    except (IndexError, RuntimeError, ValueError) as error:
        # Looked at now only: models without a table of positions read longer inputs than they were trained on.
        _refuse_too_long(model, inputs, error)
        if isinstance(error, IndexError):
            # On a GPU each look at values would wait for it, and inside a vmap there is nothing to look at.
            _refuse_unknown_tokens(model, inputs, error)
        raise
    finally:
        forget(model, states=torch.is_grad_enabled())


def _called(model: nn.Module, inputs: Batch, plain: Mapping[str, Any]) -> Any:
    """The output of a model; one of several dtypes that does not run in them runs in the widest."""
    by_name = hasattr(model, "main_input_name") or all(takes(model, name) for name in inputs)
    try:
        return model(**inputs, **plain) if by_name else model(*inputs.values())
    except RuntimeError:
        # A norm in float32 gives float32, which a layer in bfloat16 does not take.
        state = _floating(model)
        if len({tensor.dtype for tensor in state.values()}) < 2:
            raise
    wide = widest(tensor.dtype for tensor in state.values())
    state = {name: tensor.to(wide) for name, tensor in state.items()}
    inputs = {n: x.to(wide) if isinstance(x, Tensor) and x.is_floating_point() else x for n, x in inputs.items()}
    if by_name:
        return functional_call(model, state, (), {**inputs, **plain})
    return functional_call(model, state, tuple(inputs.values()))


def _floating(model: nn.Module) -> dict[str, Tensor]:
    """The floating-point parameters and buffers that a model is stored with, each once; the rest is its class's own."""
    stored = model.state_dict(keep_vars=True).keys()
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor for name, tensor in found.items() if name in stored and tensor.is_floating_point()}


def class_texts(batch: Batch) -> Tensor | None:
    """The tokens of all classes' texts, shape ``(classes, tokens)``; None where images do not come with any.

    Args:
        batch: with ``pixel_values``, and ``input_ids`` of shape ``(batch, classes, tokens)`` if it has such texts.
    """
    texts = batch.get(TOKENS)
    return texts[0] if PIXELS in batch and isinstance(texts, Tensor) and texts.ndim == 3 else None


def with_decoder_tokens(model: nn.Module, batch: Batch) -> Batch:
    """The batch with what a decoder reads: where it holds labels alone, these one place later, as in training.

    Left to itself a model makes what its decoder reads of labels, which statistics and merges do not give it, or of
    what its encoder reads.

    Args:
        model: any; batches for one that writes no texts with a decoder beside an encoder stay as they are.
        batch: labels, if there are any, of shape ``(batch, tokens)``, -100 for padding.
    """
    config, labels = getattr(model, "config", None), batch.get(LABELS)
    if not getattr(config, "is_encoder_decoder", False) or any(name in batch for name in _DECODED):
        return batch
    if not _writes(model) or labels is None or labels.ndim != 2 or labels.is_floating_point():
        return batch
    padding = getattr(config, "pad_token_id", None)
    padding = 0 if padding is None else padding
    tokens = shifted(labels, labels != IGNORED, decoder_start(config, padding), padding)
    return {**batch, DECODER_TOKENS: tokens}


def _writes(model: Any) -> bool:
    """True for a model that writes texts, whose labels are tokens; False for one that classifies, for instance."""
    return takes(model, DECODER_TOKENS) and hasattr(model, "can_generate") and model.can_generate()


def written_tokens(batch: Batch) -> Tensor | None:
    """The tokens that a decoder writes and that count by their labels, bool of shape ``(batch, tokens)``.

    Args:
        batch: with ``decoder_input_ids`` and labels of that shape, of which those to be ignored are padding; None of
            any other, and of one with a mask of its decoder.
    """
    written, labels = batch.get(DECODER_TOKENS), batch.get(LABELS)
    if written is None or labels is None or labels.shape != written.shape or DECODER_MASK in batch:
        return None
    return labels != IGNORED


@contextmanager
def refusing_misfit() -> Iterator[None]:
    """Tell what a model raises on foreign data, each in its own way, as data that does not fit it.

    Raises:
        InputError: the block failed, and nothing of the machine or of an input is told by the exception itself.
    """
    try:
        yield
    except Exception as error:
        if sentence(error) is not None:
            raise
        raise InputError(f"the data does not fit the model: {first_line(error)}") from error


def takes(model: nn.Module, argument: str) -> bool:
    """True where a model's forward names an argument."""
    return _takes(type(model).forward, argument)


@functools.cache
def _takes(call: Callable[..., Any], argument: str) -> bool:
    return argument in inspect.signature(call).parameters


def _refuse_too_long(model: nn.Module, inputs: Batch, error: Exception) -> None:
    from fusionlab.symmetry.inputs import positions_of  # noqa: PLC0415

    most = positions_of(getattr(model, "config", None))
    for name in ("input_ids", "decoder_input_ids"):
        tokens = inputs.get(name)
        if most is not None and tokens is not None and tokens.ndim > 1 and tokens.shape[1] > most:
            raise InputError(
                f"the data has inputs of {tokens.shape[1]} tokens, but the model has positions for {most}; expected "
                f"shorter ones (data.max_length at most {most})"
            ) from error


def _refuse_unknown_tokens(model: nn.Module, inputs: Batch, error: IndexError) -> None:
    embeddings, tokens = input_embeddings(model), inputs.get("input_ids")
    if embeddings is not None and tokens is not None and len(tokens):
        largest = int(tokens.max())
        if largest >= embeddings.num_embeddings or int(tokens.min()) < 0:
            raise InputError(
                f"the data has the token {largest}, but the model has embeddings for {embeddings.num_embeddings}; "
                f"expected the tokenizer that the model was trained with"
            ) from error


def input_embeddings(model: nn.Module) -> nn.Embedding | None:
    """The table of a model's tokens; None where it reads none."""
    try:
        found = getattr(model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        # Of transformers, for models that begin with a convolution.
        return None
    return found if isinstance(found, nn.Embedding) else None


def main_output(output: Any) -> Tensor:
    """The tensor that a model is used for: its logits or embeddings, or the last hidden state of a bare encoder.

    Of a model that answers questions it is both ends of the answer, shape ``(batch, 2, tokens)``.
    """
    if isinstance(output, Tensor):
        return output
    if (ends := _ends(output)) is not None:
        return ends
    for name in MAIN:
        value = getattr(output, name, None)
        if value is not None:
            return value
    if isinstance(output, tuple):
        # timm's distilled models return one set of logits for each token they classify by.
        return torch.stack([element for element in output if isinstance(element, Tensor)]).mean(0)
    raise TypeError(f"a model returned {type(output).__name__}, which holds none of {', '.join((*MAIN, *ENDS))}")


def answers_questions(model: nn.Module) -> bool:
    """True for a model whose logits say which token an answer begins and which it ends with.

    Not for one that chooses an answer to a question on an image, of all that there are.
    """
    return _takes(type(model).forward, "start_positions")


def logits(model: nn.Module, batch: Batch) -> Tensor:
    """Logits of `model` on `batch`, of shape ``(batch, ..., classes)``, see `logits_in`."""
    return logits_in(forward(model, batch), batch)


def logits_in(output: Any, batch: Batch) -> Tensor:
    """The main output of a model, in which no answer to a question begins or ends in padding.

    Args:
        output: see `main_output`.
        batch: of the inputs, for their mask.
    """
    ends, mask = _ends(output), batch.get("attention_mask")
    if ends is None:
        return main_output(output)
    if mask is None or mask.shape != ends[:, 0].shape:
        return ends
    return ends.masked_fill(~mask.bool()[:, None], _NOWHERE)


def _ends(output: Any) -> Tensor | None:
    """Both ends of answers, shape ``(batch, 2, tokens)``; None of a model that gives no such logits."""
    ends = [value for name in ENDS if isinstance(value := getattr(output, name, None), Tensor)]
    return torch.stack(ends, 1) if len(ends) == len(ENDS) else None
