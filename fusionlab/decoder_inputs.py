"""Inputs of a decoder beside an encoder: the tokens of its target one place later, behind the one that begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

Start = int | Literal["last"]
# Of the types whose target ends with the token that its decoder begins with, such as the code of a language.
_LAST = ("mbart", "plbart", "fsmt")


def told_start(config: Any) -> Start | None:
    """The token that a model's decoder begins with, ``last`` where that is the last one of each target; None if untold.

    It is what transformers' own models put before labels.

    Args:
        config: of a model with an encoder and a decoder; None where there is none.
    """
    if getattr(config, "model_type", None) in _LAST:
        return "last"
    # T5Gemma's config names it in that of its decoder.
    for part, name in ((config, "decoder_start_token_id"), (getattr(config, "decoder", None), "bos_token_id")):
        token = getattr(part, name, None)
        if isinstance(token, int):
            return token
    return None


def decoder_start(config: Any, padding: int) -> Start:
    """The same; where it is untold, as of a fresh model, the padding token begins, as T5 has it (Raffel et al., 2020).

    Args:
        config: of a model with an encoder and a decoder; None where there is none.
        padding: the tokenizer's padding token.
    """
    told = told_start(config)
    return padding if told is None else told


def decoder_inputs(target: Sequence[int], start: Start) -> list[int]:
    """The tokens that a decoder reads to give each token of its target.

    Args:
        target: at least one token.
        start: see `decoder_start`.
    """
    tokens = torch.tensor([target])
    found: list[int] = shifted(tokens, torch.ones_like(tokens, dtype=torch.bool), start, 0)[0].tolist()
    return found


def shifted(labels: Tensor, known: Tensor, start: Start, padding: int) -> Tensor:
    """The same for padded targets, shape ``(batch, tokens)``.

    Args:
        labels: shape ``(batch, tokens)``.
        known: the labels that are no padding, bool of that shape.
        start: see `decoder_start`.
        padding: stands for labels that are.
    """
    tokens = labels.masked_fill(~known, padding)
    if start == "last":
        places = torch.arange(labels.shape[1], device=labels.device)
        first = tokens.gather(1, (known * places).amax(1, keepdim=True))
    else:
        first = torch.full_like(tokens[:, :1], start)
    return torch.cat((first, tokens[:, :-1]), 1)
