"""Synthetic inputs that join a few given ones: of their shape, and on their scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.forward import LABELS
from fusionlab.probes.images import MIXTURE, drawn_images
from fusionlab.probes.tokens import WRITTEN_LENGTH, Vocabulary, accepts, writes_text, written_in_turn

IDS = "input_ids"


def inputs_like(
    given: Mapping[str, Tensor],
    models: Sequence[nn.Module],
    count: int,
    generator: torch.Generator,
    tokenizer: Any = None,
) -> dict[str, Tensor] | None:
    """Synthetic inputs like some given ones: images in their range, or texts that the models write.

    Texts are as long as the given ones, but of 128 tokens at most: places behind those are looked at in the given ones.

    Args:
        given: inputs by name, labels left out; of images pixels of shape ``(examples, channels, height, width)`` and
            nothing else, of texts ``input_ids`` of shape ``(examples, tokens)``.
        models: that the inputs are for, of one architecture; not modified.
        count: how many, at least 1.
        generator: of what is random.
        tokenizer: transformers' tokenizer of the models, for its special tokens; if None those that the config names.

    Returns:
        Inputs by name, on the CPU; None where nothing is like the given ones: numbers that are no images, texts for
        models that write none, several modalities or sequences at once.
    """
    inputs = {name: value for name, value in given.items() if name != LABELS}
    if len(inputs) == 1:
        ((name, values),) = inputs.items()
        if values.is_floating_point() and values.ndim == 4:
            return {name: _images_like(values, count, generator)}
    config: Any = getattr(models[0], "config", None)
    size = getattr(config.get_text_config(), "vocab_size", None) if hasattr(config, "get_text_config") else None
    if not _is_text(inputs) or size is None:
        return None
    vocabulary = Vocabulary.of(models[0], size, tokenizer)
    if not writes_text(models[0], vocabulary):
        return None
    text = written_in_turn(models, count, min(inputs[IDS].shape[1], WRITTEN_LENGTH), vocabulary, generator)
    return {name: value for name, value in text.items() if name == IDS or accepts(models[0], name)}


def _is_text(inputs: Mapping[str, Tensor]) -> bool:
    """True if inputs are one sequence of tokens, with what goes along with it."""
    return IDS in inputs and not any(
        value.is_floating_point() or name.startswith("decoder") for name, value in inputs.items()
    )


def _images_like(given: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Drawings and noise between the darkest and the brightest that the given images have in a channel."""
    darkest, brightest = given.amin((0, 2, 3), keepdim=True), given.amax((0, 2, 3), keepdim=True)
    images = drawn_images(tuple(given.shape[1:]), count, MIXTURE, generator).to(given)
    return darkest + (brightest - darkest) * images
