"""Models at rest: their numbers in one file of a machine, which all of its processes map and none holds."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError, first_line
from fusionlab.types import Model

if TYPE_CHECKING:
    from fusionlab.sharding_strategy import ShardingStrategy  # imports Lightning

# Bytes that a tensor's place in the file is a multiple of.
ALIGNMENT = 64


class MappedFiles:
    """Lets processes of one machine share the memory of models that all of them have made alike.

    The numbers are those of the first process of the machine. Pages are read when they are looked at, and the system
    may drop them whenever it needs memory; what a process changes in place is its own. The file has no name any more
    once all have mapped it, so nothing is left behind.

    Args:
        strategy: of the Trainer, whose processes have begun.
    """

    def __init__(self, strategy: ShardingStrategy) -> None:
        self._strategy = strategy

    def rest(self, model: Model) -> Model:
        """The model itself; every process must come with its own.

        Args:
            model: its parameters on the processor are mapped from then on, with the same numbers.

        Raises:
            InputError: no room for the file in the folder of temporary files (`TMPDIR`).
        """
        tensors = [parameter for parameter in model.parameters() if parameter.device.type == "cpu"]
        name: str = self._strategy.broadcast(f"fusionlab-model-{uuid.uuid4().hex}")
        path = Path(tempfile.gettempdir()) / name
        is_first = self._strategy.local_rank == 0
        try:
            if is_first:
                _write(tensors, path)
            self._strategy.barrier()
            _map(tensors, path)
            self._strategy.barrier()
        finally:
            if is_first:
                path.unlink(missing_ok=True)
        return model


@torch.no_grad()
def _write(tensors: list[nn.Parameter], path: Path) -> None:
    try:
        path.touch(mode=0o600, exist_ok=False)
        with path.open("wb") as file:
            for tensor in tensors:
                file.write(_bytes_of(tensor).numpy().data)
                file.write(bytes(-tensor.nbytes % ALIGNMENT))
    except OSError as error:
        raise InputError(
            f"{path.parent} cannot take {sum(tensor.nbytes for tensor in tensors)} bytes of a model, which processes "
            f"share there ({first_line(error)}); expected TMPDIR to name a folder with room"
        ) from error


def _map(tensors: list[nn.Parameter], path: Path) -> None:
    size = path.stat().st_size
    if not size:
        return
    storage = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=size)
    start = 0
    for tensor in tensors:
        found = torch.empty(0, dtype=tensor.dtype)
        tensor.data = found.set_(storage, start // tensor.element_size(), tensor.shape)  # type: ignore[call-overload]
        start += tensor.nbytes + -tensor.nbytes % ALIGNMENT


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
