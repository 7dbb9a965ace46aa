"""The plain folder that is written of models which Lightning files hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from fusionlab.checkpoints import Checkpoint, huggingface, timm_folder
from fusionlab.checkpoints.beside import write_beside
from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.commands.console import tell
from fusionlab.dtypes import Types, in_types
from fusionlab.errors import InputError
from fusionlab.paths import expanded


def write_plain_folder(
    model: nn.Module,
    first: Checkpoint,
    output: Path,
    types: Types | torch.dtype,
    texts: Mapping[str, str | bytes | None],
) -> None:
    """Write a model of Lightning files as an ordinary folder, with the tokenizer that they were trained with.

    Where a config stands beside the Lightning file, what else a model is used with is taken from there.

    Args:
        model: to write.
        first: the Lightning file that it is like.
        output: the folder, which is empty.
        types: to write the model in.
        texts: files to write beside the weights, by path in the folder.
    """
    from fusionlab.data.purpose import tokenizer_of_training  # noqa: PLC0415 (its library takes most of a second)
    from fusionlab.data.tokenizers import BYTES, load_tokenizer  # noqa: PLC0415

    written = in_types(model, types)
    if huggingface.is_transformers(written):
        huggingface.write_folder(written, output, None)
    else:
        timm_folder.write_folder(written, output, None)
    write_beside(output, texts)
    beside = first.location.parent
    if (beside / CONFIG).is_file():
        copy_side_files(beside, output)
    named = tokenizer_of_training([first.location])
    if named is None or named == BYTES:
        return
    if (place := expanded(named)).is_dir():
        copy_side_files(place, output)
        return
    try:
        load_tokenizer(named).save_pretrained(output)
    except InputError as error:
        tell(f"The plain folder is without the tokenizer that {first.location} was trained with: {error}")


def library_of(checkpoint: Checkpoint) -> str:
    """The library that a merge of checkpoints like one is loaded by, as its card names it.

    Args:
        checkpoint: of Lightning files it is that of their model, which is written as a plain folder too.
    """
    if checkpoint.format != "lightning":
        return checkpoint.format
    if huggingface.is_transformers(checkpoint.model):
        return "transformers"
    return "timm" if timm_folder.is_timm(checkpoint.model) else checkpoint.format
