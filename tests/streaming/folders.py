"""Checkpoint folders of random tensors, of a class that nobody knows."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab.merging.ingredients import PIECE
from fusionlab.streaming import StoredModel, open_folder

CONFIG = {"model_type": "known-to-nobody", "architectures": ["NobodyForCausalLM"], "hidden_size": 3}


def random_tensors(seed: int, dtype: torch.dtype = torch.float32, spread: float = 1.0) -> dict[str, Tensor]:
    """Parameters of all sizes, one of more than a piece, one of more than is read at once; buffers of three types."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {"b.bias": (7,), "scale": (), "none": (0, 3), "piece": (PIECE + 5,), "table": (9, PIECE)}
    tensors = {n: (spread * torch.randn(shape, generator=draw)).to(dtype) for n, shape in shapes.items()}
    return tensors | {
        "norm.running_mean": torch.randn(4, generator=draw).to(dtype),
        "norm.running_var": torch.rand(4, generator=draw).to(dtype),
        "norm.num_batches_tracked": torch.tensor(seed),
        "positions": torch.arange(5),
        "attn.seen": torch.tensor([True, False]),
    }


def near(tensors: Mapping[str, Tensor], seed: int, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Tensors a little off others, as fine-tuning leaves them."""
    moved = random_tensors(seed, torch.float32, 0.1)
    return {
        name: (tensor.float() + moved[name].float()).to(dtype or tensor.dtype)
        if tensor.is_floating_point() and "running" not in name
        else tensor.to(dtype or tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in tensors.items()
    }


def write(folder: Path, tensors: Mapping[str, Tensor], files: int = 1, **config: Any) -> StoredModel:
    """A folder of one file or several, opened."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    names = list(tensors)
    parts = [names[part::files] for part in range(files)]
    if files == 1:
        save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    else:
        shards = {f"model-{i + 1:05}-of-{files:05}.safetensors": part for i, part in enumerate(parts)}
        for file, part in shards.items():
            save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    opened = open_folder(folder.name, folder)
    assert opened is not None
    return opened


def hollow(file: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    """A file of float32 zeros: a head, and a hole behind it that takes no space on the disk.

    Args:
        file: to write.
        shapes: of its tensors, in order.
    """
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with file.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        opened.truncate(8 + len(text) + end)


def read(folder: Path) -> dict[str, Tensor]:
    """All tensors in the files of a folder."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found
