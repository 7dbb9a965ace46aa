"""Points between models: the architecture's function at parameters that are mixed from several models'."""

from collections.abc import Callable, Mapping, Sequence

import numpy
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.func import functional_call

from fusionlab.sharding import empty_part, fill

Function = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]
# Points between two models lie near the middle, as in Theus et al. (2025); among many, pairs must be reached too.
PAIR, MANY = 10.0, 3.0


class BufferDict(nn.Module):
    """Buffers by any name, which follow their module from device to device."""

    def __init__(self, tensors: Mapping[str, Tensor], persistent: bool) -> None:
        super().__init__()
        self.names = tuple(tensors)
        # Buffers must not have dots in their names, as parameters' have.
        for position, tensor in enumerate(tensors.values()):
            self.register_buffer(f"tensor_{position}", tensor, persistent=persistent)

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, f"tensor_{position}") for position, name in enumerate(self.names)}

    def update(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            fill(getattr(self, f"tensor_{self.names.index(name)}"), tensor)

    def share_out(self, mesh: DeviceMesh) -> None:
        """Let each of several processes hold a part of every tensor only; the numbers are lost."""
        for position in range(len(self.names)):
            name = f"tensor_{position}"
            setattr(self, name, empty_part(getattr(self, name), mesh))


class _Student(nn.Module):
    """A function of a model and a batch as a module, so that `functional_call` can exchange the parameters."""

    def __init__(self, model: nn.Module, function: Function) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.function(self.model, batch)


def at_point(
    model: nn.Module,
    point: Mapping[str, Tensor],
    function: Function,
    batch: Mapping[str, Tensor],
) -> Tensor:
    """A function of a model's architecture with other parameters."""
    return functional_call(_Student(model, function), {f"model.{n}": t for n, t in point.items()}, (batch,))


def mixed(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted sum of several models' parameters, those of weight 0 left out."""
    (first, share), *others = [(s, weight) for s, weight in zip(states, weights, strict=True) if weight]
    total = {name: share * tensor for name, tensor in first.items()}
    for state, weight in others:
        total = {name: torch.add(tensor, state[name], alpha=weight) for name, tensor in total.items()}
    return total


def random_points(
    count: int, edges: float, concentration: float | None, draw: numpy.random.Generator
) -> list[list[float]]:
    """Weights of `count` models, summing to one.

    One point between all of them; or, where edges of the simplex are drawn, the models are coupled at random and there
    is a point for each couple (of an odd number one model has none).

    Args:
        count: of the models.
        edges: of more than two models, the share of draws that are of edges, from 0 to 1.
        concentration: of the Dirichlet distribution, above 0; None is 10 for two models and 3 for more.
        draw: of the points.
    """
    chosen = [list(range(count))]
    if count > 2 and draw.random() < edges:
        order = draw.permutation(count).tolist()
        chosen = [order[start : start + 2] for start in range(0, count - 1, 2)]
    points = []
    for models in chosen:
        alpha = concentration or (PAIR if len(models) == 2 else MANY)
        weights = [0.0] * count
        for index, weight in zip(models, draw.dirichlet([alpha] * len(models)).tolist(), strict=True):
            weights[index] = weight
        points.append(weights)
    return points


def aliases(model: nn.Module) -> dict[str, str]:
    """Further names of tied parameters, and the first name of each."""
    first = {id(parameter): name for name, parameter in reversed(list(model.named_parameters(remove_duplicate=False)))}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(parameter)] for name, parameter in every if first[id(parameter)] != name}
