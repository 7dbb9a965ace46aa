"""Files of a merge: as the first model's, or of a size, and as safetensors reads them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from fusionlab.errors import InputError
from fusionlab.merging import find_method
from fusionlab.streaming import Recipe, shard_bytes, stream_merge
from tests.streaming.folders import random_tensors, read, write


def merged(folder: Path, files: int, most: int | None) -> Path:
    """The merge of a model in so many files with another in one."""
    first, second = random_tensors(1), random_tensors(2) | {"positions": torch.arange(5)}
    stored = [write(folder / "a", first, files), write(folder / "b", second)]
    (folder / "out").mkdir()
    stream_merge(stored, None, Recipe(find_method("simple"), {}, [1.0, 0.0]), folder / "out", most)
    for name, tensor in read(folder / "out").items():
        assert torch.equal(tensor, first[name]), name
    return folder / "out"


def test_as_the_first_is_sharded(tmp_path: Path) -> None:
    """The same files with the same tensors in them, and an index that says where each is."""
    out = merged(tmp_path, 3, None)
    names = {}
    for file in sorted(out.glob("*.safetensors")):
        with safe_open(file, "pt") as opened, safe_open(tmp_path / "a" / file.name, "pt") as like:
            assert set(opened.keys()) == set(like.keys())
            assert opened.metadata() == {"format": "pt"}
            names |= dict.fromkeys(opened.keys(), file.name)
    assert len(set(names.values())) == 3
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == names
    tensors = read(out)
    assert index["metadata"]["total_size"] == sum(t.numel() * t.itemsize for t in tensors.values())


def test_of_a_size(tmp_path: Path) -> None:
    """No file holds more than was asked for, but for one of a single larger tensor."""
    most = 2**20
    out = merged(tmp_path, 1, most)
    files = sorted(out.glob("*.safetensors"))
    assert [file.name for file in files] == [f"model-{i:05}-of-{len(files):05}.safetensors" for i in (1, 2, 3)]
    for file in files:
        with safe_open(file, "pt") as opened:
            sizes = [t.numel() * t.itemsize for t in map(opened.get_tensor, opened.keys())]
        assert sum(sizes) <= most or len(sizes) == 1


def test_one_file_is_enough(tmp_path: Path) -> None:
    """Then there is no index."""
    out = merged(tmp_path, 3, 2**30)
    assert [file.name for file in out.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("text", "size"), [("5GB", 5 * 10**9), ("1.5 MB", 1_500_000), ("4GiB", 2**32), ("700", 700), ("2kb", 2000)]
)
def test_sizes(text: str, size: int) -> None:
    assert shard_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "5XB", "1e9", "5 GB or so"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError, match="expected a size such as 5GB"):
        shard_bytes(text)
