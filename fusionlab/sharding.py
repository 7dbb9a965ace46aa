"""Models shared out over the processes of a Trainer: each holds a part of every parameter (FSDP).

While a stage runs, torch's `fully_shard` brings the parameters of one block together when the block is run, and lets
them go again (Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023). Tensors that no
module runs with are held in parts as DTensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, empty
from torch.utils._pytree import tree_map_only

from fusionlab.dtypes import widest
from fusionlab.models import borrowed
from fusionlab.types import Model


def shared_out(model: Model, mesh: DeviceMesh) -> Model:
    """A module that computes what a model does, of whose parameters each process holds a part.

    All processes run it side by side, on inputs of their own, the same number of times. Gradients are sums over them.

    Args:
        model: the same in every process; not modified. One of several dtypes computes in the widest.
        mesh: the processes, in one dimension.
    """
    sharded = borrowed(model)
    types = {parameter.dtype for parameter in sharded.parameters() if parameter.is_floating_point()}
    if len(types) > 1:
        # A block is brought together in one type, and in float32 it computes what it does in several.
        sharded.to(widest(types))
    every: list[nn.Module] = [*_blocks(sharded), sharded]
    for block in every:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    for module in sharded.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # A mean, as NCCL has it, is nothing that gloo knows.
            module.set_force_sum_reduction_for_comms(True)
    return sharded


def let_go(*models: nn.Module) -> None:
    """Free what this process holds of models that were shared out, and that nobody runs again.

    They refer to themselves in circles, so they would stay until Python looks for such.
    """
    for model in models:
        for parameter in model.parameters():
            if isinstance(parameter, DTensor):
                parameter.grad = None
                parameter.to_local().untyped_storage().resize_(0)


def empty_part(like: Tensor, mesh: DeviceMesh) -> Tensor:
    """A tensor without numbers yet, of which each process has a part; a scalar is whole in all.

    Args:
        like: has its shape and type.
        mesh: the processes, in one dimension.
    """
    if not like.ndim:
        return torch.empty_like(like, device=mesh.device_type)
    return empty(like.shape, dtype=like.dtype, device_mesh=mesh, placements=[Shard(0)])


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be shared out, whole in every process, all of which must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def fill(held: Tensor, tensor: Tensor) -> None:
    """Copy a whole tensor into one of which this process may hold a part only."""
    if isinstance(held, DTensor):
        here = tensor.to(held.device, held.dtype)
        tensor = distribute_tensor(here, held.device_mesh, held.placements, src_data_rank=None)
    held.copy_(tensor)


def kept_whole(tree: Any) -> Any:
    """Tensors in dicts and lists, whole on the CPU of the first process, which writes checkpoints; empty in others."""

    def gathered(tensor: DTensor) -> Tensor:
        found = tensor.full_tensor()
        return found.cpu() if tensor.device_mesh.get_rank() == 0 else found.new_empty(0)

    return tree_map_only(DTensor, gathered, tree)


def load_module(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load whole tensors into a module whose parameters may be shared out."""
    if not any(isinstance(tensor, DTensor) for tensor in module.state_dict().values()):
        module.load_state_dict(state)
        return
    for name, held in module.state_dict().items():
        fill(held, state[name])


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load moments that are whole into an optimizer whose parameters may be shared out."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        number: {name: _as_held(value, parameters[number]) for name, value in held.items()}
        for number, held in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": moments})


def _as_held(value: Any, parameter: Tensor) -> Any:
    """A moment held as its parameter is."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    held = torch.empty_like(parameter, dtype=value.dtype)
    fill(held, value)
    return held


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of a model: outermost members of its lists of modules, as far as they share no parameter."""
    uses = _uses(model)
    waiting: list[nn.Module] = [model]
    while waiting:
        module = waiting.pop()
        is_list = isinstance(module, nn.ModuleList | nn.Sequential)
        for child in dict.fromkeys(module.children()):
            own = _uses(child)
            is_alone = bool(own) and all(uses[key] == count for key, count in own.items())
            # The members of a list that is no sequence are called one by one; a list itself is not.
            if is_list and is_alone and not isinstance(child, nn.ModuleList):
                yield child
            else:
                waiting.append(child)


def _uses(model: nn.Module) -> dict[int, int]:
    """The number of places of a module that each of its parameters has."""
    found: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        found[id(parameter)] = found.get(id(parameter), 0) + 1
    return found
