"""Statistics of a small model, made by hand: every linear map is watched while the model runs on random inputs."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.forward import forward
from fusionlab.statistics import Activations, Fisher, Grams, LinearMap, Statistics, basis_of
from fusionlab.symmetry import blueprint
from tests.symmetry.models import generator

SAMPLES = 64


@torch.no_grad()
def measure(model: nn.Module, seed: int = 0, batch: int = 60) -> dict[str, Any]:
    """Gram matrices, Fisher information and activations of a model on random inputs.

    Args:
        model: in eval mode, of a described architecture.
        seed: of the inputs; the same for models that are to be compared by activations.
        batch: how many inputs.
    """
    maps: dict[str, LinearMap] = {}
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def watch(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            maps[f"{name}.weight"] = LinearMap(name, 1, None if module.bias is None else f"{name}.bias")
            inputs[f"{name}.weight"] = rows_read(module, args[0])
            is_patches = isinstance(module, nn.Conv2d)
            outputs[f"{name}.weight"] = (output.flatten(2).mT if is_patches else output).flatten(0, -2)

        return hook

    handles = [
        module.register_forward_hook(watch(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
    ]
    draw = generator(seed)
    forward(model, {i.name: i.random(batch, draw) for i in blueprint(model).inputs})
    for handle in handles:
        handle.remove()
    extended = {name: torch.cat((x, x.new_ones(len(x), 1)), 1) for name, x in inputs.items()}
    common: dict[str, Any] = {"architecture": "", "basis": basis_of(model.state_dict()), "examples": batch}
    found: list[Statistics] = [
        Grams(
            matrices={maps[name].inputs: x.mT @ x for name, x in extended.items()},
            rows={maps[name].inputs: len(x) for name, x in extended.items()},
            maps=maps,
            **common,
        ),
        Fisher(diagonal={name: p.detach().square() + 0.1 for name, p in model.named_parameters()}, **common),
        Activations(
            inputs={name: x[:SAMPLES].mT for name, x in inputs.items()},
            outputs={name: x[:SAMPLES].mT for name, x in outputs.items()},
            maps=maps,
            drawn=f"seed {seed}",
            **common,
        ),
    ]
    return {statistics.kind: statistics for statistics in found}


def rows_read(module: nn.Module, tensor: Tensor) -> Tensor:
    """What a linear map reads, one row for each token or patch."""
    if isinstance(module, nn.Conv2d):
        assert module.kernel_size == module.stride
        patches = functional.unfold(tensor, module.kernel_size, stride=module.stride)
        return patches.mT.flatten(0, 1)
    return tensor.flatten(0, -2)
