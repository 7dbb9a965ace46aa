"""A device that is none: its tensors hold real numbers on the processor, and meet no others, as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

# torch knows this device and starts nothing for it.
ELSEWHERE = torch.device("meta")
# A tensor of indices may lie on the processor.
_INDEXING = {
    "index.Tensor",
    "index_put_.default",
    "index_put.default",
    "_index_put_impl_.default",
    "_unsafe_index.Tensor",
}
_aten: Any = torch.ops.aten


class Remote(Tensor):
    """A tensor on the device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Remote:
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=ELSEWHERE,
        )  # fmt: skip
        made.held = held
        return made

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{function} on the device, outside of it")


class _Device(TorchDispatchMode):
    """Computes where its tensors are, and counts what was computed on the device by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        leaves, _ = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        remote = [x for x in tensors if isinstance(x, Remote)]
        plain = [x for x in tensors if not isinstance(x, Remote)]
        name = function.name().removeprefix("aten::")
        wanted = kwargs.get("device")
        wanted = None if wanted is None else torch.device(wanted)
        copies = function in (_aten._to_copy.default, _aten.copy_.default)
        if remote and not copies:
            strange = [
                x for x in plain if x.ndim > 0 and not (name in _INDEXING and x.dtype in (torch.int64, torch.bool))
            ]
            assert not strange, f"{name}: a tensor of the processor meets one of the device"
            self.calls[name] = self.calls.get(name, 0) + 1
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        if function is _aten._conj.default:
            # What marks a tensor as conjugate is not seen from here.
            function = _aten.conj_physical.default
        found = function(*tree_map(_held, args), **tree_map(_held, kwargs))
        if function is _aten.copy_.default:
            return args[0]
        there = wanted == ELSEWHERE if wanted is not None else bool(remote)
        if function is _aten._local_scalar_dense.default or not there:
            return found
        if name.split(".")[0].endswith("_") and isinstance(args[0], Remote):
            return args[0]
        return tree_map(lambda x: Remote(x) if isinstance(x, Tensor) else x, found)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Remote) else value


@contextmanager
def device() -> Iterator[dict[str, int]]:
    """The device, inside the block; gives how often each operation has run on it."""
    mode = _Device()
    with mode:
        yield mode.calls
