"""The linear maps of a model, whatever module they are: what they read as rows, and under which parameters' names."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from fusionlab.statistics.layout import Layout
from fusionlab.statistics.statistics import LinearMap

Projection = nn.Linear | Conv1D
Convolution = nn.Conv1d | nn.Conv2d
# The reason to leave a matrix out whose module makes more of its input than a linear map does.
BY_ITSELF = "a matrix that its module multiplies with by itself, as routers do"


@dataclass(frozen=True)
class Weight:
    """A parameter that is the weight of a linear map, of several where it is tied.

    Attributes:
        names: in the model's state, the first is what it goes by.
        biases: for each name the name of the bias beside it, or None.
        modules: the modules that apply it.
        dim: the dimension that reads, see `LinearMap`.
        features: length of a row that it reads.
    """

    names: tuple[str, ...]
    biases: tuple[str | None, ...]
    modules: tuple[nn.Module, ...]
    dim: int
    features: int

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass
class LinearMaps:
    """The linear maps of a model and, once the model has run on an example, what each of them reads.

    Attributes:
        weights: by name.
        left_out: by weight's name, why nothing is gathered for it.
        layouts: by weight's name, for each call in one forward how its rows belong to examples; None where it read
            something that is no data.
        inputs: by weight's name, the name of the input that it reads: that of the first weight that read it.
    """

    weights: dict[str, Weight]
    left_out: dict[str, str]
    layouts: dict[str, tuple[Layout | None, ...]] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def watched(self) -> list[Weight]:
        """The weights that read data, in order."""
        return [weight for name, weight in self.weights.items() if name in self.inputs]

    def sources(self) -> list[Weight]:
        """One weight for each distinct input, the one that it is named after."""
        return [weight for weight in self.watched() if self.inputs[weight.name] == weight.name]

    def part(self, names: Collection[str]) -> LinearMaps:
        """Some of the weights, by name; an input that several of them read is named after the first of these."""
        weights = {name: weight for name, weight in self.weights.items() if name in names}
        first: dict[str, str] = {}
        inputs = {name: first.setdefault(source, name) for name, source in self.inputs.items() if name in weights}
        return LinearMaps(weights, {}, self.layouts, inputs)

    def described(self) -> dict[str, LinearMap]:
        """The linear maps as statistics keep them, by their names in the model's state."""
        return {
            name: LinearMap(self.inputs[weight.name], weight.dim, bias)
            for weight in self.watched()
            for name, bias in zip(weight.names, weight.biases, strict=True)
        }

    def omissions(self) -> dict[str, str]:
        """The entry of the settings of statistics that says what was left out, if anything."""
        reasons = dict.fromkeys(self.left_out.values())
        told = [f"{', '.join(n for n, r in self.left_out.items() if r == reason)}: {reason}" for reason in reasons]
        return {"left_out": "; ".join(told)} if told else {}


def linear_maps(model: nn.Module) -> LinearMaps:
    """Find every linear map of a model: Linear, Conv1D and convolutions without groups.

    A weight that is also an embedding is left out: it is no linear map alone. So are matrices that a module multiplies
    with by itself: of all experts in one tensor, of their routers.
    """
    holders: dict[int, list[tuple[str, nn.Module]]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for own, parameter in module.named_parameters(recurse=False):
            holders.setdefault(id(parameter), []).append((f"{path}.{own}".removeprefix("."), module))
    found = LinearMaps({}, {})
    for held in holders.values():
        modules = [module for _, module in held]
        name = next((name for name, module in held if _is_weight_of_map(name, module)), None)
        if name is None:
            found.left_out |= _hidden_maps(*held[0])
            continue
        if (reason := _unfit(modules)) is not None:
            found.left_out[name] = reason
            continue
        biases = [_bias_name(name, module) for name, module in held]
        if len({id(module.bias) for module in modules}) > 1:
            found.left_out[name] = "one weight of several maps that have biases of their own"
            continue
        transposed, shape = isinstance(modules[0], Conv1D), dict(modules[0].named_parameters())["weight"].shape
        found.weights[name] = Weight(
            tuple(n for n, _ in held),
            tuple(biases),
            tuple(dict.fromkeys(modules)),
            0 if transposed else 1,
            math.prod(shape[:1] if transposed else shape[1:]),
        )
    return found


def rows_read(module: nn.Module, value: Tensor) -> Tensor:
    """The input of a linear map as rows, shape ``(*leading, features)``; a convolution's patches, ``(batch, patches,
    channels * height * width)``."""
    if isinstance(module, nn.Conv1d):
        # One row of pixels.
        kernel, dilation, stride = ((1, setting[0]) for setting in (module.kernel_size, module.dilation, module.stride))
        padding = (0, _padding(module)[0])
        return functional.unfold(value.unsqueeze(-2), kernel, dilation, padding, stride).transpose(1, 2)
    if isinstance(module, nn.Conv2d):
        settings = (module.kernel_size, module.dilation, _padding(module), module.stride)
        return functional.unfold(value, *settings).transpose(1, 2)
    return value


def _padding(module: nn.Conv1d | nn.Conv2d) -> tuple[int, ...]:
    return (0, 0) if isinstance(module.padding, str) else module.padding


def rows_written(module: nn.Module, value: Tensor) -> Tensor:
    """The output of a linear map as rows, in the order of `rows_read`."""
    return value.flatten(2).transpose(1, 2) if isinstance(module, Convolution) else value


def _is_weight_of_map(name: str, module: nn.Module) -> bool:
    kinds = (nn.Linear, Conv1D, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    fused = isinstance(module, nn.MultiheadAttention) and name.endswith("in_proj_weight")
    return fused or (isinstance(module, kinds) and (name == "weight" or name.endswith(".weight")))


def _unfit(modules: Sequence[nn.Module]) -> str | None:
    """The reason why a weight that is used by these modules is not seen as a linear map; None where it is one."""
    first: Any = modules[0]
    if any(isinstance(module, nn.MultiheadAttention) for module in modules):
        return "applied inside torch.nn.MultiheadAttention, where its input cannot be seen"
    if any(not isinstance(module, Projection | Convolution) for module in modules):
        return "an embedding too, or in a convolution of volumes"
    if any(type(module) is not type(first) for module in modules):
        return "the weight of maps of different classes"
    if not first.weight.is_floating_point() or (isinstance(first, Projection) and first.weight.ndim != 2):
        return "stored in a quantized form"
    return _unfit_convolution(first, len(modules)) if isinstance(first, Convolution) else None


def _unfit_convolution(module: nn.Conv1d | nn.Conv2d, count: int) -> str | None:
    if count > 1:
        return "the weight of several convolutions"
    if module.groups > 1 or module.padding_mode != "zeros" or module.padding == "same":
        return "a convolution with groups or a padding that is not described"
    return None


def _hidden_maps(name: str, module: nn.Module) -> dict[str, str]:
    """The reason why a parameter is left out that only its own module knows to be a matrix, or several, by its name."""
    own = name.rpartition(".")[2]
    shape = module.get_parameter(own).shape
    if len(shape) == 3 and min(shape) > 1:
        return {name: "several matrices in one tensor, as experts have them"}
    if len(shape) == 2 and own == "weight" and not isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return {name: BY_ITSELF}
    return {}


def _bias_name(weight: str, module: nn.Module) -> str | None:
    return None if module.bias is None else f"{weight.removesuffix('weight')}bias"
