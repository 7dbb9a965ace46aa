"""The cost of a forward pass, in operations of its products."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fusionlab.evaluation.preservation import samples
from fusionlab.forward import forward
from fusionlab.symmetry.float64 import take_plain_products
from fusionlab.symmetry.inputs import Input


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """A counter of the operations of all products that are computed meanwhile."""
    # It does not know all kernels that fuse attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        yield counter


@torch.no_grad()
def operations(model: nn.Module, inputs: Sequence[Input]) -> int:
    """Multiplications and additions of all matrix products and convolutions of one pass over a random input.

    Args:
        model: not modified, and run in its own type.
        inputs: what it takes.
    """
    # Modules and configs of its own, and the model's tensors: nothing is copied that has a size.
    shared = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
    same = copy.deepcopy(model, shared).eval()
    take_plain_products(same)
    device = next(model.parameters()).device
    (drawn,) = samples(model, inputs, seed=0, count=1)
    with counting() as counter:
        forward(same, {name: x.to(device) for name, x in drawn.items()})
    return int(counter.get_total_flops())
