"""Tensors that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch import Tensor


class Asked(Mapping[str, Tensor]):
    """Tensors by name, each made each time that it is asked for.

    Args:
        names: of all.
        make: gives the tensor of a name.
    """

    def __init__(self, names: Sequence[str], make: Callable[[str], Tensor]) -> None:
        self.names, self.make = names, make

    def __getitem__(self, name: str) -> Tensor:
        return self.make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
