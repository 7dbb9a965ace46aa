"""Settings in which configs differ, of those that change what a model computes or which parameters it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from fusionlab.checkpoints.files import CONFIG, read_config
from fusionlab.checkpoints.hub import locate
from fusionlab.errors import InputError

# Names, labels, tokens, training, positions that nothing is learned for.
OF_USE = (
    r"_name_or_path|name_or_path|transformers_version|(torch_)?dtype|.*dropout.*|.*pdrop|.*layerdrop|drop_path_rate|"
    r".*_prob|.*_loss_coef|.*_token_id|.*_token_index|id2label|label2id|use_cache|problem_type|finetuning_task|"
    r"initializer_.*|init_std|tokenizer_class|auto_map|"
    r"max_position_embeddings|max_length|task_specific_params|_attn_implementation|gradient_checkpointing|output_.*|"
    r"return_dict|pretrained_cfg"
)
# Of no parameter either.
OF_POSITIONS = r"rope_(theta|scaling|parameters)"
# An entry, and what it is in two configs.
Difference = tuple[str, Any, Any]


def config_of(source: str) -> dict[str, Any]:
    """The config of a model; empty where there is none that can be read, which is told by what reads the model.

    Args:
        source: path or hub id.
    """
    try:
        location = locate(source)
        return read_config(location) if (location / CONFIG).is_file() else {}
    except InputError:
        return {}


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

    What its class does not have, as other programs and versions write it beside, changes nothing that is computed.

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
        one, other = (parse_config(content, Path(source)) for content in (first, second))
    except InputError:
        return None
    return list(differing(_of_class(one.to_dict(), one), _of_class(other.to_dict(), other), passed_over))


def _of_class(values: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Those entries of a config that its class has, also inside of the configs of its parts."""
    from fusionlab.checkpoints.quiet import quiet  # noqa: PLC0415 - imports transformers

    try:
        with quiet():
            known = type(config)().to_dict()
    except Exception:
        # A class that has no defaults for all of its entries.
        return dict(values)
    parts = {name: part for name in values if hasattr(part := getattr(config, name, None), "to_dict")}
    kept = {name: value for name, value in values.items() if name in known}
    return {name: _of_class(value, parts[name]) if name in parts else value for name, value in kept.items()}
