"""Processes that share the work of a matching: what they add up, agree on and tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

Result = TypeVar("Result")


class Team(Protocol):
    """Processes that call the same functions in the same order.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    rank: int
    size: int

    def total(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """The sums over all processes of some tensors, in one reduction; the same bits in each process.

        Args:
            parts: real numbers, each of one shape in all processes; added in float64.
        """

    def agreed(self, make: Callable[[], Result], rank: int = 0) -> Result:
        """The result of one process, known to all.

        Args:
            make: called in that process alone; gives tensors, numbers or nothing, also in tuples, lists and dicts.
            rank: of that process.

        Raises:
            Exception: in all processes, what `make` raised in that one.
        """

    def joined(self, mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of all processes by name, those of later ones over those of earlier ones."""


class Alone:
    """One process by itself."""

    rank, size = 0, 1

    def total(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """The tensors as they are."""
        return parts

    def agreed(self, make: Callable[[], Result], rank: int = 0) -> Result:
        """The result."""
        return make()

    def joined(self, mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A dict of them."""
        return dict(mine)


ALONE = Alone()


class Processes:
    """The processes of torch.distributed, whose default group exists.

    What is sent goes through the group's own device: the processor for gloo, the present GPU for NCCL.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")

    def total(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """See `Team.total`."""
        flat = torch.cat([part.detach().to(self._device, torch.float64).flatten() for part in parts])
        dist.all_reduce(flat)
        pieces = flat.split([part.numel() for part in parts])
        return tuple(piece.view(part.shape).to(part) for piece, part in zip(pieces, parts, strict=True))

    def agreed(self, make: Callable[[], Result], rank: int = 0) -> Result:
        """See `Team.agreed`."""
        held: list[Any] = [None]
        leaves: list[Any] = []
        if self.rank == rank:
            try:
                leaves, structure = tree_flatten(make())
                held = [("made", structure, [_described(leaf) for leaf in leaves])]
            except Exception as error:  # it is every process's, or the others would wait
                held = [("failed", error, [])]
        dist.broadcast_object_list(held, src=rank, device=self._device)
        word, said, described = held[0]
        if word == "failed":
            raise said
        found = []
        for place, one in enumerate(described):
            found.append(
                one if not isinstance(one, _Like) else self._sent(one, leaves[place] if leaves else None, rank)
            )
        result: Result = tree_unflatten(found, said)
        return result

    def joined(self, mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Team.joined`."""
        found: dict[str, Tensor] = {}
        for rank in range(self.size):
            found |= self.agreed(lambda: dict(mine), rank)
        return found

    def _sent(self, like: _Like, tensor: Tensor | None, rank: int) -> Tensor:
        """A tensor of one process, in all of them."""
        if tensor is None:
            moved = torch.empty(like.shape, dtype=like.dtype, device=self._device)
        else:
            moved = tensor.detach().to(self._device).contiguous()
        # gloo sends no truth values.
        dist.broadcast(moved.view(torch.uint8) if like.dtype == torch.bool else moved, src=rank)
        if tensor is not None:
            return tensor
        # On this process's own device of that kind, not on the other's.
        return moved.to(like.device)


class _Like:
    """All that is known of a tensor before it comes."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device.type


def _described(leaf: Any) -> Any:
    return _Like(leaf) if isinstance(leaf, Tensor) else leaf


@contextmanager
def launched() -> Iterator[Team]:
    """The processes that torchrun started this one beside, inside the block; this one alone where it did not."""
    if not dist.is_torchelastic_launched() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    # Tensors on GPUs go through memory: there are few of them, and any machine has gloo.
    dist.init_process_group("gloo")
    try:
        yield Processes()
    finally:
        dist.destroy_process_group()
