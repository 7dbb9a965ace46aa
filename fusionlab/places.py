"""Places of tokens behind padding, for the decoders that do not find them themselves."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fusionlab.types import Batch

# Types of decoders that look a token's place up by its number, padding before it included.
_COUNTING = {"gpt2", "gpt_neo", "gpt_bigcode", "openai-gpt", "imagegpt"}


def places(config: Any, inputs: Batch) -> dict[str, Tensor]:
    """The places of tokens, without those of padding; nothing where a model finds them itself, or where they are given.

    Padding before a text would move it, so that what is said of it depended on the texts beside it. transformers gives
    models the same places when they write texts.

    Args:
        config: of the model; None where it has none.
        inputs: by name.
    """
    mask = inputs.get("attention_mask")
    if getattr(config, "model_type", None) not in _COUNTING or mask is None or mask.ndim != 2:
        return {}
    return {} if "position_ids" in inputs else {"position_ids": (mask.long().cumsum(1) - 1).clamp(min=0)}
