"""States and tables on the disk: what is computed from them and when."""

from pathlib import Path

import pytest
import torch

from fusionlab.matching.blocks import Block
from fusionlab.streaming.scratch import Scratch, table_bytes
from fusionlab.symmetry.blueprint import Space
from fusionlab.symmetry.groups import Orthogonal, Permutation
from fusionlab.symmetry.roles import Role


def test_a_state_changes_when_it_is_settled(tmp_path: Path) -> None:
    """Until then what is changed is computed each time, and the state that it is made of stays as it is."""
    with Scratch(tmp_path / "scratch") as scratch:
        state = {name: scratch.kept(torch.arange(3.0)) for name in "ab"}
        asked: list[str] = []

        def doubled(name: str) -> torch.Tensor:
            asked.append(name)
            return 2 * state[name]

        changed = scratch.changed(state, ["a"], doubled)
        twice = scratch.changed(changed, ["a", "b"], lambda name: changed[name] + 1)
        assert asked == []
        assert list(twice) == ["a", "b"]
        assert torch.equal(twice["a"], torch.tensor([1.0, 3.0, 5.0]))
        assert torch.equal(state["a"], torch.arange(3.0))
        settled = scratch.settled(twice)
        assert settled is state
        assert torch.equal(state["a"], torch.tensor([1.0, 3.0, 5.0]))
        assert torch.equal(state["b"], torch.tensor([1.0, 2.0, 3.0]))
    assert list(tmp_path.iterdir()) == []


def test_a_table_takes_no_further_space_for_what_it_holds_already(tmp_path: Path) -> None:
    """Unless that has another shape."""
    with Scratch(tmp_path / "scratch") as scratch:
        table = scratch.table()
        for value in (1.0, 2.0):
            table["a"] = torch.full((2, 2), value)
        table["none"] = torch.empty(0, 3)
        assert len(list((tmp_path / "scratch").iterdir())) == 1
        table["a"] = torch.zeros(3)
        assert {name: tuple(tensor.shape) for name, tensor in table.items()} == {"a": (3,), "none": (0, 3)}
        assert len(list((tmp_path / "scratch").iterdir())) == 2


def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """The place on the disk is taken before a file is mapped."""
    with Scratch(tmp_path / "scratch") as scratch, pytest.MonkeyPatch.context() as patch:

        def full(*_: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("os.posix_fallocate", full, raising=False)
        with pytest.raises(OSError, match="No space"):
            scratch.kept(torch.zeros(4))


def test_systems_without_a_call_for_it_take_the_place_by_writing(tmp_path: Path) -> None:
    """As macOS: the file is whole before it is mapped, also where it is no multiple of what is written at once."""
    with Scratch(tmp_path / "scratch") as scratch, pytest.MonkeyPatch.context() as patch:
        patch.delattr("os.posix_fallocate", raising=False)
        patch.setattr("fusionlab.streaming.scratch._ZEROS", 16)
        kept = scratch.kept(torch.arange(7, dtype=torch.float32))
        assert torch.equal(kept, torch.arange(7, dtype=torch.float32))
        assert (tmp_path / "scratch" / "0").stat().st_size == 28


def test_the_bytes_of_tables() -> None:
    """Two numbers of 8 bytes for each entry of a mean; of what lies inside permuted blocks for every pair of them."""
    rotation = Space("stream", Orthogonal(5), Role.RESIDUAL)
    heads = Space("heads", Permutation(3), Role.HEADS)
    inner = Space("qk", Orthogonal(2), Role.QUERY_KEY, 0, ("heads",), (3,))
    assert table_bytes([Block(None, (rotation,))]) == 16 * 25
    assert table_bytes([Block(heads, (inner,))]) == 16 * (9 + 9 * 4)
