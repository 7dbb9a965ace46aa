"""Models at rest keep their numbers and ties, in a file that leaves nothing behind."""

import copy
import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fusionlab import mapped
from fusionlab.errors import InputError
from fusionlab.mapped import MappedFiles
from fusionlab.sharding_strategy import ShardingStrategy


class OneProcess(ShardingStrategy):
    """One that is the first of its machine, and alone."""

    local_rank = 0

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj

    def barrier(self, *_: Any, **__: Any) -> None:
        """Nobody to wait for."""


class Tied(nn.Module):
    """Numbers of several types and shapes, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5, dtype=torch.bfloat16), nn.Linear(5, 3, dtype=torch.float64)
        self.scale, self.again = nn.Parameter(torch.tensor(2.5)), self.first
        self.turned = nn.Parameter(torch.arange(6.0).view(2, 3).t(), requires_grad=False)


def test_a_model_at_rest_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, types and ties; what is changed in place afterwards is this model's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = Tied()
    before, parameters = copy.deepcopy(model.state_dict()), list(model.parameters())
    assert MappedFiles(OneProcess()).rest(model) is model
    assert not list(tmp_path.iterdir())
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == before[name].dtype
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert {p.untyped_storage().data_ptr() for p in model.parameters()} != {p.data_ptr() for p in model.parameters()}, (
        "one file for all"
    )
    with torch.no_grad():
        model.scale.add_(1)
    assert float(model.scale) == 3.5
    assert float(model.second.bias.sum()) == float(before["second.bias"].sum())


def test_a_folder_without_room_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(mapped, "_bytes_of", full)
    with pytest.raises(InputError, match=r"cannot take \d+ bytes of a model.*expected TMPDIR to name a folder with"):
        MappedFiles(OneProcess()).rest(Tied())
    assert not list(tmp_path.iterdir())
