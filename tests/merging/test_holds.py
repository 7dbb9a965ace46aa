"""The memory that methods by parameter say they hold, by counting the tensors that are alive."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fusionlab.merging import find_method, methods
from fusionlab.merging.ingredients import Ingredients
from fusionlab.streaming.memory import held, memory_of

SHAPES = [(128, 128), (32, 512), (512, 32)]
BY_PARAMETER = [name for name in methods() if find_method(name).unit == "parameter"]
# What LAPACK holds beside tensors, in numbers of 4 bytes for each of a square matrix: a copy of it and its work space.
DECOMPOSED = dict.fromkeys(("tsv_m", "iso_c", "iso_cts", "wudi", "knots"), 5)


class Alive(TorchDispatchMode):
    """Counts the bytes of tensors made by torch's operations while they are alive, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and (key := leaf.untyped_storage()._cdata) not in self.sizes:
                self.sizes[key] = leaf.untyped_storage().nbytes()
                weakref.finalize(leaf.untyped_storage(), self.sizes.pop, key)
        self.most = max(self.most, sum(self.sizes.values()))
        return made


@pytest.mark.parametrize("shape", SHAPES, ids=["square", "wide", "tall"])
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("method", BY_PARAMETER)
def test_what_is_held_is_what_is_said(method: str, count: int, shape: tuple[int, int]) -> None:
    """Models and base among it: no more than said, and of square ones said is not half as much again."""
    if method == "slerp" and count != 2:
        pytest.skip("slerp takes two models")
    chosen, generator = find_method(method), torch.Generator().manual_seed(0)
    base = {"w": torch.randn(shape, generator=generator)}
    states = [{"w": base["w"] + 0.01 * torch.randn(shape, generator=generator)} for _ in range(count)]
    needs_base = "base" in chosen.requires()
    given = Ingredients(states, [1 / count] * count, None, (), base if needs_base else None, None, 0)
    with Alive() as alive:
        chosen.merge(given, **({"solver": "exact"} if method == "wudi" else {}))
    size = shape[0] * shape[1]
    numbers = alive.most / 4 / size + count + needs_base + DECOMPOSED.get(method, 0)
    said = held(shape, count, chosen) / size
    assert numbers <= said + 1, "a merge may break a machine's memory"
    assert said <= 1.5 * numbers or shape[0] != shape[1], "fewer parameters are in work at once than could be"


def test_the_largest_tensor_need_not_hold_the_most() -> None:
    """A head of two classes has covariances of all its inputs; what is averaged, and a merge of nothing, have none."""
    head, body = (2, 2048), (128, 128)
    ace = find_method("ace")
    assert held(head, 2, ace) > held(body, 2, ace)
    assert memory_of([head, body], 2, ace) == 4 * held(head, 2, ace)
    assert held((2, 2, 1024), 2, ace) < held((2, 2048), 2, ace) / 10
    assert memory_of([], 2, ace) == memory_of([(7,)], 2, ace)
