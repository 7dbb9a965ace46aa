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
from fusionlab.dtypes import Types, in_types
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
    if named is not None and (place := expanded(named)).is_dir():
        copy_side_files(place, output)
