"""Running models whose parameters lie on the disk: each module gets its own while it runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.evaluation.preservation import samples
from fusionlab.forward import logits
from fusionlab.symmetry.float64 import InFloat64, take_plain_products
from fusionlab.symmetry.inputs import Input

Provide = Callable[[str], Tensor]
# Random inputs that functions are compared on.
INPUTS = 4


@torch.no_grad()
def logits_of(model: nn.Module, provide: Provide, inputs: Sequence[Input], seed: int, count: int) -> Tensor:
    """The logits of a model on random inputs, in float64.

    Args:
        model: without parameters in memory (`fusionlab.checkpoints.weightless`); not modified.
        provide: a parameter or buffer of its state dict by name, in any type; asked for when a module needs it, in the
            order in which modules run.
        inputs: of the model.
        seed: of the random inputs.
        count: how many.

    Returns:
        Shape ``(count, ..., classes)``.

    Raises:
        RuntimeError: a module reads parameters of another one, which is not running then.
    """
    running = copy.deepcopy(model).double().eval()
    take_plain_products(running)
    for module in running.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[key] = _absent(parameter.shape)
    each = samples(model, inputs, seed, count)
    together = {one.name: torch.cat([sample[one.name] for sample in each]) for one in inputs}
    with _filled(running, provide), InFloat64():
        try:
            found = logits(running, together)
        except ValueError:
            # Sequence classifiers without a padding token refuse batches.
            found = torch.cat([logits(running, sample) for sample in each])
    if not bool(torch.isfinite(found).all()):
        raise RuntimeError(f"the modules of a {type(model).__name__} do not run by themselves")
    return found


def _absent(shape: torch.Size) -> nn.Parameter:
    """A stand-in for a parameter that is not in memory: takes none, and whatever reads it becomes NaN.

    On the meta device it would not do: some products of such a tensor with another are numbers that nobody computed.
    """
    return nn.Parameter(torch.full((), torch.nan, dtype=torch.float64).expand(shape), requires_grad=False)


@contextmanager
def _filled(model: nn.Module, provide: Provide) -> Iterator[None]:
    """Give every module its own parameters, and those buffers that are stored, while it runs."""
    stored = set(model.state_dict())
    handles = []
    memory = _Memory()
    for prefix, module in model.named_modules():
        own = {key: f"{prefix}.{key}" if prefix else key for key in (*module._parameters, *module._buffers)}
        own = {key: name for key, name in own.items() if name in stored}
        if own:
            handles += _hook(module, own, provide, memory)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Memory:
    """Room for the parameters of one module at a time: asking for it anew takes longer than writing into it."""

    def __init__(self) -> None:
        self.numbers = torch.empty(0, dtype=torch.float64)

    def holding(self, tensor: Tensor) -> Tensor:
        """A tensor in float64, there until the next one is asked for."""
        count = tensor.numel()
        if len(self.numbers) < count:
            self.numbers = torch.empty(0, dtype=torch.float64)
            self.numbers = torch.empty(count, dtype=torch.float64)
        return self.numbers[:count].view(tensor.shape).copy_(tensor)


def _hook(module: nn.Module, own: dict[str, str], provide: Provide, memory: _Memory) -> list[Any]:
    """Fill one module before it runs, and empty it afterwards."""
    empty = {key: module._parameters.get(key) for key in own}
    # Its weight alone: what a linear map returns shares no memory with it, and no other map runs meanwhile.
    is_map = type(module) is nn.Linear

    def fill(*_: object) -> None:
        for key, name in own.items():
            found = provide(name)
            if is_map and key == "weight" and found.dtype != torch.float64:
                found = memory.holding(found)
            elif found.is_floating_point():
                found = found.double()
            if key in module._parameters:
                module._parameters[key] = nn.Parameter(found, requires_grad=False)
            else:
                module._buffers[key] = found

    def drop(*_: object) -> None:
        for key, parameter in empty.items():
            if key in module._parameters:
                module._parameters[key] = parameter

    return [module.register_forward_pre_hook(fill), module.register_forward_hook(drop, always_call=True)]
