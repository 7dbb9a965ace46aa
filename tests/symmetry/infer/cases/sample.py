"""One model that no blueprint describes: how it is built, and what it is called with."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn

from fusionlab.symmetry import Blueprint, SymmetryError, blueprint

VOCABULARY = 37
BATCH = 3

Inputs = Callable[[torch.Generator], dict[str, Tensor]]


@dataclass(frozen=True)
class Sample:
    """A small model and its inputs.

    Attributes:
        name: the type, with what is special about it in brackets; unique.
        build: makes the model from a config, with any initialisation.
        inputs: draws the keyword arguments of one forward call, a batch of two or three.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs


def described(model: nn.Module, sample: Sample) -> Blueprint:
    """The blueprint of a sample's model, of which an example is given once where its inputs cannot be guessed."""
    try:
        return blueprint(model)
    except SymmetryError:
        return blueprint(model, sample.inputs(torch.Generator().manual_seed(0)))


def pretrained(name: str, head: str, inputs: Inputs, **config: object) -> Sample:
    """A class of transformers, built from its config in its plain implementation.

    The fused kernels of attention and of experts know no float64 or hide what they compute, so attention is the eager
    one and experts are one batched product.

    Args:
        name: of the sample.
        head: the class, such as "MixtralForCausalLM"; its module is imported when the sample is built.
        inputs: of the sample.
        config: what the config does not leave at its default.
    """

    def build() -> nn.Module:
        kind = getattr(transformers, head)
        settings = kind.config_class(**config)
        settings._attn_implementation = "eager"
        settings._experts_implementation = "batched_mm"
        settings.use_cache = False
        return kind(settings)

    return Sample(name, build, inputs)


def tokens(
    name: str = "input_ids", length: int = 7, low: int = 5, high: int = VOCABULARY, batch: int = BATCH
) -> Inputs:
    """Token ids from `low` to `high` - 1, (batch, length)."""
    return lambda draw: {name: torch.randint(low, high, (batch, length), generator=draw)}


def floats(name: str, *shape: int, batch: int = 2) -> Inputs:
    """Normal numbers, (batch, *shape)."""
    return lambda draw: {name: torch.randn(batch, *shape, generator=draw)}


def images(*size: int, name: str = "pixel_values", channels: int = 3, batch: int = 2) -> Inputs:
    """Images of normal numbers, (batch, channels, height, width); one number for square ones."""
    height, width = size if len(size) == 2 else (size[0], size[0])
    return floats(name, channels, height, width, batch=batch)


def constant(name: str, *rows: object) -> Inputs:
    """The same tensor at every draw."""
    return lambda draw: {name: torch.tensor(rows)}


def together(*parts: Inputs) -> Inputs:
    """The arguments of all parts."""
    return lambda draw: {name: value for part in parts for name, value in part(draw).items()}


def own(name: str, build: type[nn.Module], inputs: Inputs, *arguments: object) -> Sample:
    """A module of one's own as a sample, built of these arguments."""
    return Sample(f"own: {name}", lambda: build(*arguments), inputs)
