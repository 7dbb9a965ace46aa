"""Adapters as they lie on the disk: what is read of them is the model that they are, to rounding."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from fusionlab import checkpoints
from fusionlab.errors import InputError
from fusionlab.streaming import open_model
from fusionlab.streaming.stored import Reader, StoredTensor
from tests.checkpoints.test_adapters import CASES, LINEAR, LLAMA, made
from tests.checkpoints.test_wrapped import CASES as WRAPPED
from tests.parts import one_in


def whole(reader: Reader, name: str, step: int) -> torch.Tensor:
    """A tensor in stretches of so many numbers."""
    stored = reader.model.tensors[name]
    starts = range(0, max(stored.count, 1), step)
    return torch.cat([reader.read(name, start, min(step, stored.count - start)) for start in starts])


@pytest.mark.parametrize("name", one_in(2, [*CASES, *WRAPPED]))
def test_stretches_of_an_adapter_are_those_of_the_model_in_memory(tmp_path: Path, name: str) -> None:
    """Wherever a stretch begins and ends; only what no tensor of a file stands for is left to memory."""
    build, options = (CASES | WRAPPED)[name]
    made(tmp_path, build, {"target_modules": [], **options})
    expected = checkpoints.read(tmp_path / "adapter").model
    checkpoints.save(expected, tmp_path / "whole")
    found, dense = open_model(str(tmp_path / "adapter")), open_model(str(tmp_path / "whole"))
    assert found is not None
    assert dense is not None
    assert (found.base, found.location) == (str(tmp_path / "base"), tmp_path / "base")
    assert found.tensors.keys() == dense.tensors.keys()
    with found.opened() as reader, dense.opened() as other:
        for tensor, stored in found.tensors.items():
            own = other.read(tensor, 0, stored.count)
            for step in (7, max(1, stored.count)):
                torch.testing.assert_close(whole(reader, tensor, step), own, rtol=1e-6, atol=1e-6, msg=tensor)


def test_opening_reads_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not for learned lengths of a turned weight, which is read once when numbers of it are asked for."""
    build, options = CASES["Conv1D (DoRA)"]
    made(tmp_path, build, options)
    read, raw = [0], Reader.raw

    def counted(self: Reader, name: str, stored: StoredTensor, dtype: torch.dtype, start: int, count: int) -> Tensor:
        read[0] += count
        return raw(self, name, stored, dtype, start, count)

    monkeypatch.setattr(Reader, "raw", counted)
    found = open_model(str(tmp_path / "adapter"))
    assert found is not None
    assert read == [0]
    name = next(name for name in found.tensors if name.endswith("c_attn.weight"))
    count = found.tensors[name].count
    with found.opened() as reader:
        reader.read(name, 0, count)
        reader.read(name, 0, count)
    assert read == [3 * count]


def test_half_precision_is_rounded_once(tmp_path: Path) -> None:
    """To the base model's type, as in memory."""
    made(tmp_path, lambda: LlamaForCausalLM(LLAMA), {"target_modules": LINEAR, "r": 3}, torch.bfloat16)
    state = checkpoints.read(tmp_path / "adapter").model.state_dict()
    found = open_model(str(tmp_path / "adapter"))
    assert found is not None
    with found.opened() as reader:
        for tensor, stored in found.tensors.items():
            read = reader.read(tensor, 0, stored.count)
            assert read.dtype == torch.bfloat16
            torch.testing.assert_close(read, state[tensor].flatten(), rtol=2**-7, atol=1e-6, msg=tensor)


def test_what_no_tensor_stands_for_is_read_in_memory(tmp_path: Path) -> None:
    """An adapter that puts a head on its base model, and one on a base model that lacks what it changes."""
    build, options = CASES["a classifier"]
    made(tmp_path, build, options | {"modules_to_save": ["classifier"]})
    body = checkpoints.load(tmp_path / "base").bert
    checkpoints.save(body, tmp_path / "body")
    assert open_model(str(tmp_path / "adapter"), str(tmp_path / "body")) is None
    assert open_model(str(tmp_path / "adapter"), str(tmp_path / "base")) is not None
    checkpoints.save(LlamaForCausalLM(LLAMA), tmp_path / "other")
    assert open_model(str(tmp_path / "adapter"), str(tmp_path / "other")) is None
    with pytest.raises(InputError):
        checkpoints.read(tmp_path / "adapter", base=str(tmp_path / "other"))
