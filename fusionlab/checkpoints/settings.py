"""Settings in which configs differ, of those that change what a model computes or which parameters it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from fusionlab.errors import InputError

# Names, labels, tokens, training, positions that nothing is learned for.
OF_USE = (
    r"_name_or_path|name_or_path|transformers_version|(torch_)?dtype|.*dropout.*|.*_prob|.*_token_id|.*_token_index|"
    r"id2label|label2id|use_cache|problem_type|finetuning_task|initializer_.*|"
    r"max_position_embeddings|max_length|task_specific_params|_attn_implementation|gradient_checkpointing|output_.*|"
    r"return_dict|pretrained_cfg"
)
# Of no parameter either.
OF_POSITIONS = r"rope_(theta|scaling|parameters)"


# An entry, and what it is in two configs.
Difference = tuple[str, Any, Any]


def differing(
    first: Mapping[str, Any], second: Mapping[str, Any], passed_over: str, before: str = ""
) -> Iterator[Difference]:
    """The entries in which two configs differ, those inside of others as ``vision.depth``, with both values.

    Args:
        first: a config as plain data.
        second: another one.
        passed_over: pattern of names that do not count.
        before: what stands before each name.
    """
    for name in dict.fromkeys(chain(first, second)):
        one, other = first.get(name), second.get(name)
        if re.fullmatch(passed_over, name) or one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differing(one, other, passed_over, f"{before}{name}.")
        else:
            yield f"{before}{name}", one, other


def differing_as_read(
    first: Mapping[str, Any], second: Mapping[str, Any], passed_over: str, source: str
) -> list[Difference] | None:
    """The same, once transformers has read both: what one config says and the other leaves at its default is equal.

    Args:
        first: a config as plain data.
        second: another one.
        passed_over: pattern of names that do not count.
        source: of them, for messages.

    Returns:
        The entries; None where transformers does not know the type, or refuses one.
    """
    from fusionlab.checkpoints.huggingface_config import parse_config  # noqa: PLC0415 - takes a second to import

    try:
        one, other = (parse_config(content, Path(source)).to_dict() for content in (first, second))
    except InputError:
        return None
    return list(differing(one, other, passed_over))
