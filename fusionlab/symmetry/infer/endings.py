"""Texts that end with the token for the end, where a model tells a text by what it has computed there.

At any other token it would be told by its first, behind which a causal model has not looked at anything yet, or not at
all: a classifier that finds no end refuses the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.trace import Plain, in_float64
from fusionlab.symmetry.inputs import Input

# Examples of a trial.
_BATCH = 2


def ended(model: nn.Module, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """The inputs of a model, with texts that end if it reads more of its parameters then.

    Args:
        model: on the CPU; its weights are not looked at.
        inputs: guessed, with texts that end nowhere.
    """
    config: Any = model.config
    end = getattr(config.get_text_config(), "eos_token_id", None)
    if not isinstance(end, int):
        return inputs
    # Of two values there is a choice and no text.
    texts = [one.name for one in inputs if (one.vocabulary or 0) > 2 and end in range(one.vocabulary or 0)]
    with_end = tuple(replace(one, last=end) if one.name in texts else one for one in inputs)
    if with_end == inputs:
        return inputs
    plain = Plain(model)
    draws = torch.Generator().manual_seed(0)
    batch = in_float64({one.name: one.random(_BATCH, draws) for one in with_end})
    # The same texts but for their end.
    endless = {
        one.name: batch[one.name].where(batch[one.name] != end, (end + 1) % (one.vocabulary or 1))
        if one.last is not None
        else batch[one.name]
        for one in with_end
    }
    read = _read(plain, endless)
    return inputs if read == len(plain.state) or _read(plain, batch) <= read else with_end


def _read(plain: Plain, batch: Mapping[str, Tensor]) -> int:
    """The number of parameters that what a model is for depends on; -1 where it refuses the inputs."""
    generator = torch.Generator().manual_seed(0)
    state = {name: x.clone().requires_grad_() for name, x in plain.generic(generator).items()}
    try:
        told = plain.told(state, batch)
        weights = torch.rand(told.shape, generator=generator, dtype=told.dtype)
        gradients = torch.autograd.grad(told @ weights, list(state.values()), allow_unused=True)
    except Exception:  # a class refuses inputs in any way it likes
        return -1
    return sum(gradient is not None and bool(gradient.any()) for gradient in gradients)
