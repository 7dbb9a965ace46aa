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
from fusionlab.streaming.memory import held

SIZE = 128
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


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("method", BY_PARAMETER)
def test_what_is_held_is_what_is_said(method: str, count: int) -> None:
    """Models and base among it: no more than said, and said is not half as much again, but for a few numbers."""
    if method == "slerp" and count != 2:
        pytest.skip("slerp takes two models")
    chosen, generator = find_method(method), torch.Generator().manual_seed(0)
    base = {"w": torch.randn(SIZE, SIZE, generator=generator)}
    states = [{"w": base["w"] + 0.01 * torch.randn(SIZE, SIZE, generator=generator)} for _ in range(count)]
    needs_base = "base" in chosen.requires()
    given = Ingredients(states, [1 / count] * count, None, (), base if needs_base else None, None, 0)
    with Alive() as alive:
        chosen.merge(given, **({"solver": "exact"} if method == "wudi" else {}))
    numbers = alive.most / 4 / SIZE**2 + count + needs_base + DECOMPOSED.get(method, 0)
    said = held(SIZE**2, count, chosen) / SIZE**2
    assert numbers <= said + 1, "a merge may break a machine's memory"
    assert said <= 1.5 * numbers, "fewer parameters are in work at once than could be"
