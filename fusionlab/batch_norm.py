"""BatchNorm after a merge: its running statistics describe what the end models write, and must be measured again.

A channel of the merge is a mean of two that agree only in part, so it varies less than either, and less again after
every layer (Jordan et al., "REPAIR: renormalizing permuted activations for interpolation repair", 2023, section 3). The
mean of the end models' running variances is therefore too large. Measuring them again on data is what Izmailov et al.
("Averaging weights leads to wider optima and better generalization", 2018) do after every averaging of weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fusionlab.errors import InputError
from fusionlab.forward import forward
from fusionlab.spreading import spread
from fusionlab.types import Batch, Model

# The buffer that counts batches seen in training; nothing that a model computes depends on it.
COUNTER = "num_batches_tracked"
RUNNING = ("running_mean", "running_var")
# A batch of fewer examples has no spread, or hardly one.
LEAST_EXAMPLES = 2

# Batches that activations of a merge are measured on.
MEASURED_BATCHES = 8
AVERAGED = (
    "the running statistics of BatchNorm were averaged, as no data was given; those of a merge are others, so give "
    "data to have them measured"
)


def averaged_note() -> str:
    """A sentence on running statistics of BatchNorm that nothing was there to measure on."""
    return f"{AVERAGED[0].upper()}{AVERAGED[1:]} (--data or --probes)."


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """The BatchNorm modules of a model that keep running statistics, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


def running_statistics(names: Iterable[str]) -> list[str]:
    """The names of the running means and variances of BatchNorm among those of a model's state, in order."""
    places = [(name, *name.rpartition(".")[::2]) for name in names]
    counted = {module for _, module, own in places if own == COUNTER}
    return [name for name, module, own in places if own in RUNNING and module in counted]


def remeasured(model: Model, batches: Iterable[Batch]) -> Model:
    """A model whose BatchNorm layers have the running statistics of what itself feeds them; see `remeasure`.

    Args:
        model: not modified.
        batches: inputs, labels ignored.

    Returns:
        A new model in eval mode; `model` itself where it has no BatchNorm.

    Raises:
        InputError: no batch of two examples or more.
    """
    if not batch_norms(model):
        return model
    twin = copy.deepcopy(model).eval()
    remeasure(twin, batches)
    return twin


@torch.no_grad()
def remeasure(model: nn.Module, batches: Iterable[Batch]) -> None:
    """Set the running statistics of every BatchNorm to the mean over batches of each batch's mean and variance.

    As in training every layer reads what the ones before it make of the same batch, so one pass is enough. Everything
    else of the model, dropout for instance, stays in eval mode.

    Args:
        model: in eval mode; changed in place.
        batches: inputs, labels ignored; a few are used (see `measured_on`), those of a single example left out.

    Raises:
        InputError: no batch of two examples or more.
    """
    norms: list[Any] = list(batch_norms(model).values())
    momenta = [norm.momentum for norm in norms]
    device, seen = next(model.parameters()).device, 0
    try:
        for norm in norms:
            norm.reset_running_stats()
            # The plain mean over batches.
            norm.momentum = None
            norm.train()
        for batch in measured_on(batches):
            if len(next(iter(batch.values()))) >= LEAST_EXAMPLES:
                forward(model, {name: value.to(device) for name, value in batch.items()})
                seen += 1
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()
    if not seen:
        raise InputError("BatchNorm was given no batch of two examples or more; expected at least one")


def measured_on(batches: Iterable[Batch]) -> list[Batch]:
    """The few batches that activations are measured on.

    Args:
        batches: inputs; of a loader that reads a data set in order from all of it, see
            `fusionlab.spreading.spread`.
    """
    return spread(batches, MEASURED_BATCHES)


def by_batch(model: Model) -> Model:
    """A copy of a model whose BatchNorm layers normalise by the batch they read, in eval mode too.

    What lies between two models has no running statistics of its own; this computes with those of the batch.

    Args:
        model: not modified; where it has no BatchNorm, it is returned itself.
    """
    if not batch_norms(model):
        return model
    twin = copy.deepcopy(model)
    for norm in batch_norms(twin).values():
        norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return twin


@contextmanager
def norms_hooked(norms: Mapping[str, _BatchNorm], call: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Have `call` called with the name of a BatchNorm and what it reads, whenever one runs.

    Args:
        norms: by name.
        call: is told before the module runs.
    """

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda module, args: call(name, args[0])

    handles = [norm.register_forward_pre_hook(hook(name)) for name, norm in norms.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def channels_last(read: Tensor) -> Tensor:
    """The input of a BatchNorm, ``(batch, channels, ...)``, as rows of channels in float64, ``(rows, channels)``."""
    return read.double().transpose(1, -1).flatten(0, -2)
