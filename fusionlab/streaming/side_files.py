"""Config, tokenizer and card of a folder that is written without a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from fusionlab.checkpoints.beside import write_beside
from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.dtypes import name_of
from fusionlab.streaming.stored import StoredModel


def write_side_files(
    model: StoredModel, folder: Path, dtype: torch.dtype, texts: Mapping[str, str | bytes | None]
) -> None:
    """Write config, tokenizer and all else that a model is used with, and what is said of it.

    Args:
        model: that they are copied from.
        folder: that has the weights already.
        dtype: that most numbers were written in; a config that names a type names this one.
        texts: files to write beside it, by name, such as a model card; None for one that is not copied.
    """
    # What is read by dequantising is not written quantised.
    if (config := _in_type(model.config, name_of(dtype))) != model.config or model.is_scaled:
        (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    copy_side_files(model.location, folder, adapter=model.adapter)
    write_beside(folder, texts)


def _in_type(config: Mapping[str, object], dtype: str) -> dict[str, object]:
    """A config that names another type wherever it names one."""
    changed = {key: _in_type(value, dtype) if isinstance(value, Mapping) else value for key, value in config.items()}
    return changed | {key: dtype for key in ("dtype", "torch_dtype") if isinstance(config.get(key), str)}
