"""Inputs that a transformers model takes, guessed from its config and its forward's arguments."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from fusionlab.symmetry.blueprint import Input

_TOKENS, _SAMPLES = 12, 1200


def guessed_inputs(model: nn.Module) -> tuple[Input, ...]:
    """The inputs of a model; empty if there is no telling.

    Args:
        model: of transformers; one on the meta device will do.
    """
    m: Any = model
    config, known = m.config, inspect.signature(m.forward).parameters
    names = {getattr(m, "main_input_name", ""), *(("pixel_values",) if _needs_image(config, known) else ())}
    inputs: list[Input] = []
    if "input_ids" in names:
        inputs.append(_tokens(m, "input_ids", _TOKENS))
    if "pixel_values" in names:
        inputs += _image(config)
    if "input_features" in names and hasattr(config, "num_mel_bins"):
        length = 2 * getattr(config, "max_source_positions", 4 * _TOKENS)
        inputs.append(Input("input_features", (config.num_mel_bins, length)))
    if "input_values" in names:
        inputs.append(Input("input_values", (_SAMPLES,)))
    classifies = "Classification" in type(m).__name__
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in known and inputs and not classifies:
        inputs.append(_tokens(m, "decoder_input_ids", _TOKENS - 1))
    return tuple(inputs)


def _tokens(m: Any, name: str, length: int) -> Input:
    text = m.config.get_text_config()
    longest = next(
        (n for n in (getattr(text, f, None) for f in ("max_position_embeddings", "n_positions")) if n and n > 0), length
    )
    ends = "ForSequenceClassification" in type(m).__name__ and getattr(m.config, "is_encoder_decoder", False)
    return Input(name, (min(length, longest),), text.vocab_size, m.config.eos_token_id if ends else None)


def _needs_image(config: Any, known: Any) -> bool:
    """Images and texts are two inputs of equal right; models that put images among tokens read texts alone as well."""
    tokens = any(name.startswith("image_token") for name in vars(config))
    return "pixel_values" in known and "input_ids" in known and hasattr(config, "vision_config") and not tokens


def _image(config: Any) -> list[Input]:
    config = getattr(config, "vision_config", config)
    side = getattr(config, "image_size", 64)
    height, width = (side, side) if isinstance(side, int) else side
    return [Input("pixel_values", (getattr(config, "num_channels", 3), height, width))]
