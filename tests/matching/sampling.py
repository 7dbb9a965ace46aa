"""Activations of a small model by forward hooks, kept as simple as can be, for tests of what is done with them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from fusionlab.forward import forward
from fusionlab.statistics import Activations
from fusionlab.statistics.likelihood import scores
from fusionlab.statistics.statistics import LinearMap, basis_of


def sample(
    model: nn.Module, batch: Mapping[str, Tensor], drawn: str = "all rows", gradients: bool = False
) -> Activations:
    """What every linear map reads and writes at every row of one batch, with gradients where that is asked for."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    read: dict[str, Tensor] = {}
    written: dict[str, Tensor] = {}
    maps: dict[str, LinearMap] = {}
    tensors: dict[str, Tensor] = {}

    def keep(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        name = names[module.weight]
        shared = next((other for other, tensor in tensors.items() if tensor is arguments[0]), name)
        tensors[name] = arguments[0]
        maps[name] = LinearMap(shared, 0 if isinstance(module, Conv1D) else 1, None)
        read[name] = arguments[0].detach().flatten(0, -2).mT
        written[name] = output

    hooks = [m.register_forward_hook(keep) for m in model.modules() if isinstance(m, nn.Linear | Conv1D)]
    found: dict[str, Tensor] = {}
    if gradients:
        (likelihood,) = scores(model, batch)
        every = torch.autograd.grad(likelihood.sum(), list(written.values()), allow_unused=True, materialize_grads=True)
        found = {name: gradient.flatten(0, -2).mT for name, gradient in zip(written, every, strict=True)}
    else:
        with torch.no_grad():
            forward(model, batch)
    for hook in hooks:
        hook.remove()
    return Activations(
        architecture="any",
        basis=basis_of(model.state_dict()),
        examples=len(next(iter(batch.values()))),
        inputs=read,
        outputs={name: tensor.detach().flatten(0, -2).mT for name, tensor in written.items()},
        maps=maps,
        drawn=drawn,
        gradients=found,
    )
