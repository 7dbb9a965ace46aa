"""Networks on images: convolutions one after the other, or beside a stream, with batch norms; a head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.symmetry.groups import Copies, Invertible, Permutation, Scale
from tests.symmetry.infer.networks.demand import Demand, Place, linear
from tests.symmetry.infer.networks.parts import ACTIVATIONS, Activation

SIDE, CLASSES, GROUPS = 4, 4, 3
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "flatten": lambda x: x.flatten(1),
    "mean": lambda x: x.mean((2, 3)),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1),
    "largest": lambda x: x.amax((2, 3)),
}


@dataclass(frozen=True)
class ConvolutionSpec:
    """One convolution, a norm and a function behind it.

    Attributes:
        kind: all channels to all; each to itself; a group to a group; all to all and back, beside the stream.
        channels: that it writes in each of three groups; inside, where it is beside the stream.
    """

    kind: Literal["plain", "depthwise", "grouped", "residual"]
    channels: int
    normed: bool
    activation: Activation
    bias: bool


@dataclass(frozen=True)
class ImageNetwork:
    """A network on images.

    Attributes:
        stem: a plain convolution, whose kind is not looked at.
        convolutions: behind it.
        pool: between the last convolution and the head.
    """

    stem: ConvolutionSpec
    convolutions: tuple[ConvolutionSpec, ...]
    pool: str

    def build(self) -> nn.Module:
        return Image(self)

    def inputs(self, generator: torch.Generator, batch: int = 3) -> dict[str, Tensor]:
        return {"image": torch.randn(batch, 3, SIDE, SIDE, generator=generator)}

    def demands(self) -> list[Demand]:
        """Every space that must be found."""
        model, found = Image(self), list[Demand]()
        # Channels from one convolution that is not in groups to the next such.
        chain = [_Channels(GROUPS * self.stem.channels, linear("stem", model.stem, 0))]
        chain[-1].behind("stem_norm", self.stem)
        for i, spec in enumerate(self.convolutions):
            convolution, name, channels = model.convolutions[i], f"convolutions.{i}", chain[-1]
            match spec.kind:
                case "residual":
                    channels.places |= {(f"{name}.0.weight", 1)} | linear(f"{name}.3", convolution[3], 0)
                    inside = linear(f"{name}.0", convolution[0], 0) | {(f"{name}.3.weight", 1)}
                    own = _Channels(spec.channels, inside)
                    own.behind(f"{name}.1", spec)
                    found += own.demands()
                    if spec.normed and spec.activation == "relu":
                        # Behind a norm a factor is taken up by its gain and bias.
                        at = {(f"{name}.1.weight", 0), (f"{name}.1.bias", 0), (f"{name}.3.weight", 1)}
                        found.append(Demand(Scale(1), frozenset(at), (spec.channels,)))
                    continue
                case "depthwise":
                    channels.places |= linear(name, convolution, 0)
                    channels.is_simple = False
                case "grouped":
                    channels.in_groups.add((f"{name}.weight", 1))
                    chain.append(_Channels(convolution.out_channels, linear(name, convolution, 0)))
                case "plain":
                    channels.places.add((f"{name}.weight", 1))
                    found += _of(chain)
                    chain = [_Channels(convolution.out_channels, linear(name, convolution, 0))]
            chain[-1].behind(f"norms.{i}", spec)
        chain[-1].places.add(("head.weight", 1))
        # Axes have no word for a matrix that acts on channels with places inside of them.
        chain[-1].is_simple &= self.pool != "flatten"
        # A maximum lets positive factors pass, as a ReLU does.
        chain[-1].acts |= {"relu"} if self.pool == "largest" else set()
        return found + _of(chain)


class _Channels:
    """The channels between two convolutions."""

    def __init__(self, count: int, places: set[Place]) -> None:
        self.count, self.places = count, places
        self.in_groups = set[Place]()
        self.acts = set[str]()
        self.is_normed, self.is_simple = False, True

    def behind(self, norm: str, spec: ConvolutionSpec) -> None:
        """What stands behind the convolution acts on its channels."""
        if spec.normed:
            self.is_normed = True
            self.places |= {(f"{norm}.{name}", 0) for name in ("weight", "bias", "running_mean", "running_var")}
        self.acts |= {spec.activation} - {"none"}

    def demands(self, groups: Copies = ()) -> list[Demand]:
        places = frozenset(self.places | self.in_groups)
        count = self.count // GROUPS if groups else self.count
        if not self.acts and not self.is_normed and self.is_simple:
            return [Demand(Invertible(count), places, groups)]
        found = [Demand(Permutation(count), places, groups)]
        if self.acts == {"relu"} and not self.is_normed and self.is_simple:
            found.append(Demand(Scale(1), places, (*groups, count)))
        return found


def _of(chain: list[_Channels]) -> list[Demand]:
    """What acts on channels that convolutions in groups follow one another in."""
    if len(chain) == 1:
        return chain[0].demands()
    groups = set[Place]().union(*(channels.places for channels in chain))
    inside = [demand for channels in chain for demand in channels.demands((GROUPS,))]
    return [Demand(Permutation(GROUPS), frozenset(groups)), *inside]


class Image(nn.Module):
    def __init__(self, spec: ImageNetwork) -> None:
        super().__init__()
        self.spec, count = spec, GROUPS * spec.stem.channels
        self.stem = nn.Conv2d(3, count, 3, padding=1, bias=spec.stem.bias)
        self.stem_norm = _norm(spec.stem, count)
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for one in spec.convolutions:
            if one.kind == "residual":
                enter, leave = nn.Conv2d(count, one.channels, 1, bias=one.bias), nn.Conv2d(one.channels, count, 1)
                act = _Function(one.activation)
                self.convolutions.append(nn.Sequential(enter, _norm(one, one.channels), act, leave))
                self.norms.append(nn.Identity())
                continue
            written = count if one.kind == "depthwise" else GROUPS * one.channels
            groups = {"plain": 1, "depthwise": count, "grouped": GROUPS}[one.kind]
            self.convolutions.append(nn.Conv2d(count, written, 3, padding=1, groups=groups, bias=one.bias))
            self.norms.append(_norm(one, written))
            count = written
        self.head = nn.Linear(count * (SIDE**2 if spec.pool == "flatten" else 1), CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = ACTIVATIONS[self.spec.stem.activation](self.stem_norm(self.stem(image)))
        for one, convolution, norm in zip(self.spec.convolutions, self.convolutions, self.norms, strict=True):
            found = convolution(x)
            x = x + found if one.kind == "residual" else ACTIVATIONS[one.activation](norm(found))
        return self.head(POOLS[self.spec.pool](x))


class _Function(nn.Module):
    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](x)


def _norm(spec: ConvolutionSpec, count: int) -> nn.Module:
    return nn.BatchNorm2d(count) if spec.normed else nn.Identity()


convolutions = st.builds(
    ConvolutionSpec,
    kind=st.sampled_from(["plain", "depthwise", "grouped", "residual"]),
    channels=st.sampled_from([3, 4, 5]),
    normed=st.booleans(),
    activation=st.sampled_from(list(ACTIVATIONS)),
    bias=st.booleans(),
)


image_networks = st.builds(
    ImageNetwork,
    stem=convolutions,
    convolutions=st.lists(convolutions, min_size=1, max_size=3).map(tuple),
    pool=st.sampled_from(list(POOLS)),
)
