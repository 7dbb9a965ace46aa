"""The cost of a forward pass, in operations of its products."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fusionlab.evaluation.preservation import random_logits
from fusionlab.symmetry.inputs import Input


def operations(model: nn.Module, inputs: Sequence[Input]) -> int:
    """Multiplications and additions of all matrix products and convolutions of one pass over a random input.

    Args:
        model: not modified.
        inputs: what it takes.
    """
    # The counter does not know all kernels that fuse attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        random_logits(copy.deepcopy(model).double().eval(), inputs, count=1)
    return int(counter.get_total_flops())
