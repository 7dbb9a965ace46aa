"""Parts of networks on sequences: attention, feed-forward units, experts, norms. Each knows its own symmetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.symmetry.groups import Group, Invertible, Permutation, Rotary, Scale, Signs
from tests.symmetry.infer.networks.demand import Demand, Place, linear

Activation = Literal["gelu", "relu", "squared", "tanh", "silu", "none"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": torch.relu,
    "squared": lambda x: torch.relu(x).square(),
    "tanh": torch.tanh,
    "silu": functional.silu,
    "none": lambda x: x,
}


class Part(nn.Module):
    """A branch beside a stream, (batch, length, width) to the same.

    Attributes:
        reads: where it reads the stream.
        writes: where it writes to it.
        demands: the spaces inside of it.
    """

    reads: set[Place]
    writes: set[Place]
    demands: list[Demand]


@dataclass(frozen=True)
class AttentionSpec:
    """Attention of `heads` keys, each for `sharing` queries, of `inner` features; values have `value` of them."""

    heads: int
    sharing: int
    inner: int
    value: int
    layout: Literal["separate", "fused", "fused by head"]
    bias: bool
    positions: Literal["none", "half", "interleaved", "relative"]
    norms: bool
    causal: bool

    def part(self, width: int, length: int) -> Part:
        return Attention(self, width, length)


class Attention(Part):
    def __init__(self, spec: AttentionSpec, width: int, length: int) -> None:
        super().__init__()
        self.spec = spec
        self.sizes = [spec.heads * spec.sharing * spec.inner, spec.heads * spec.inner, spec.heads * spec.value]
        if spec.layout == "separate":
            self.q, self.k, self.v = (nn.Linear(width, n, bias=spec.bias) for n in self.sizes)
            parts = {name: linear(name, getattr(self, name), 0) for name in "qkv"}
            self.reads = {(f"{name}.weight", 1) for name in "qkv"}
        else:
            self.qkv = nn.Linear(width, sum(self.sizes), bias=spec.bias)
            parts = dict.fromkeys("qkv", linear("qkv", self.qkv, 0))
            self.reads = {("qkv.weight", 1)}
        self.o = nn.Linear(spec.heads * spec.sharing * spec.value, width, bias=spec.bias)
        self.writes = linear("o", self.o, 0)
        q, k, v, o = parts["q"], parts["k"], parts["v"], linear("o", self.o, 1)
        table: set[Place] = set()
        if spec.positions == "relative":
            self.relative = nn.Parameter(torch.randn(spec.heads * spec.sharing, length, length))
            table = {("relative", 0)}
        copies = (spec.heads,) if spec.heads > 1 else ()
        self.demands = [Demand(Invertible(spec.value), frozenset(v | o), copies)]
        if spec.heads > 1:
            self.demands.append(Demand(Permutation(spec.heads), frozenset(q | k | v | o | table)))
        if spec.sharing > 1:
            self.demands.append(Demand(Permutation(spec.sharing), frozenset(q | o | table), copies))
        if spec.norms:
            # A norm's gains are one vector for all heads; of them, a factor may go from queries to keys.
            self.q_norm, self.k_norm = nn.RMSNorm(spec.inner), nn.RMSNorm(spec.inner)
            gains = {("q_norm.weight", 0), ("k_norm.weight", 0)}
            if spec.positions in ("none", "relative"):
                self.demands += [
                    Demand(Permutation(spec.inner), frozenset(q | k | gains)),
                    Demand(Scale(1, signed=True), frozenset(gains), (spec.inner,)),
                    Demand(Signs(1), frozenset(q | k), (*copies, spec.inner)),
                ]
            elif spec.positions == "half":
                # A plane is turned by half a turn.
                self.demands.append(Demand(Signs(spec.inner // 2), frozenset(q | k), copies))
        else:
            self.demands.append(Demand(self._of_keys(), frozenset(q | k), copies))

    def _of_keys(self) -> Group:
        if self.spec.positions in ("half", "interleaved"):
            return Rotary(self.spec.inner, interleaved=self.spec.positions == "interleaved")
        return Invertible(self.spec.inner)

    def forward(self, x: Tensor) -> Tensor:
        spec, (batch, length, _) = self.spec, x.shape
        if spec.layout == "separate":
            q, k, v = self.q(x), self.k(x), self.v(x)
        elif spec.layout == "fused":
            q, k, v = self.qkv(x).split(self.sizes, -1)
        else:
            by_head = self.qkv(x).view(batch, length, spec.heads, -1)
            q, k, v = by_head.split([n // spec.heads for n in self.sizes], -1)
        q = q.reshape(batch, length, spec.heads * spec.sharing, spec.inner).transpose(1, 2)
        k = k.reshape(batch, length, spec.heads, spec.inner).transpose(1, 2)
        v = v.reshape(batch, length, spec.heads, spec.value).transpose(1, 2)
        if spec.norms:
            q, k = self.q_norm(q), self.k_norm(k)
        if spec.positions in ("half", "interleaved"):
            q, k = (turned(t, spec.positions == "interleaved") for t in (q, k))
        if spec.sharing > 1:
            k, v = (t.repeat_interleave(spec.sharing, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * spec.inner**-0.5
        if spec.positions == "relative":
            scores = scores + self.relative[:, :length, :length]
        if spec.causal:
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        mixed = scores.softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).reshape(batch, length, -1))


def turned(x: Tensor, interleaved: bool) -> Tensor:
    """Rotary positions of (..., length, features): Su et al., "RoFormer" (2021), in either order of coordinates."""
    half = x.shape[-1] // 2
    frequencies = 10.0 ** -(torch.arange(half, dtype=x.dtype) / half)
    phases = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequencies
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    out = a * phases.cos() - b * phases.sin(), b * phases.cos() + a * phases.sin()
    return torch.stack(out, -1).flatten(-2) if interleaved else torch.cat(out, -1)


@dataclass(frozen=True)
class UnitsSpec:
    """Feed-forward units, plain or gated; the gate's layer apart or fused with the other."""

    count: int
    activation: Activation
    gate: Literal["none", "apart", "fused"]
    bias: bool

    def part(self, width: int, length: int) -> Part:
        return Units(self, width)


class Units(Part):
    def __init__(self, spec: UnitsSpec, width: int) -> None:
        super().__init__()
        self.spec, count = spec, spec.count
        self.down = nn.Linear(count, width, bias=spec.bias)
        self.up = nn.Linear(width, 2 * count if spec.gate == "fused" else count, bias=spec.bias)
        up, down = linear("up", self.up, 0), linear("down", self.down, 1)
        gate = up if spec.gate == "fused" else set()
        self.reads, self.writes = {("up.weight", 1)}, linear("down", self.down, 0)
        if spec.gate == "apart":
            self.gate = nn.Linear(width, count, bias=spec.bias)
            gate = linear("gate", self.gate, 0)
            self.reads.add(("gate.weight", 1))
        if spec.activation == "none" and spec.gate == "none":
            self.demands = [Demand(Invertible(count), frozenset(up | down))]
            return
        self.demands = [Demand(Permutation(count), frozenset(up | gate | down))]
        if spec.activation in ("relu", "squared") and spec.gate == "none":
            self.demands.append(Demand(Scale(1), frozenset(up | down), (count,)))
        elif spec.activation == "tanh" and spec.gate == "none":
            self.demands.append(Demand(Signs(1), frozenset(up | down), (count,)))
        elif spec.gate != "none" and spec.activation != "none":
            # Of two linear factors, either layer's is as good.
            self.demands.append(Demand(Scale(1, signed=True), frozenset(up | down), (count,)))
            if spec.activation in ("relu", "squared"):
                # Beside the factor of what it is multiplied with, the gate's may be taken up by that or by the reader.
                others = {name for name, _ in up | down if not name.startswith("gate")} - {name for name, _ in gate}
                self.demands.append(Demand(Scale(1), frozenset(gate), (count,), free=frozenset(others)))

    def forward(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.spec.activation]
        if self.spec.gate == "none":
            return self.down(activation(self.up(x)))
        gate, up = self.up(x).chunk(2, -1) if self.spec.gate == "fused" else (self.gate(x), self.up(x))
        return self.down(activation(gate) * up)


@dataclass(frozen=True)
class ExpertsSpec:
    """A mixture of experts; `chosen` of them by the largest weight, or all where it is None.

    They are in common tensors, which are multiplied as a whole or taken by number, or in lists.
    """

    experts: int
    count: int
    activation: Literal["gelu", "relu"]
    chosen: int | None
    kept: Literal["whole", "by number", "lists"] = "whole"

    def part(self, width: int, length: int) -> Part:
        return Experts(self, width)


class Experts(Part):
    def __init__(self, spec: ExpertsSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.router = nn.Linear(width, spec.experts, bias=False)
        inner, outer = torch.randn(spec.experts, width, spec.count), torch.randn(spec.experts, spec.count, width)
        in_lists = spec.kept == "lists"
        self.up: Any = nn.ParameterList(list(inner)) if in_lists else nn.Parameter(inner)
        self.down: Any = nn.ParameterList(list(outer)) if in_lists else nn.Parameter(outer)
        up, down = ("up.*", "down.*") if in_lists else ("up", "down")
        self.reads, self.writes = {("router.weight", 1), (up, 1)}, {(down, 2)}
        units = frozenset({(up, 2), (down, 1)})
        self.demands = [
            Demand(Permutation(spec.experts), frozenset({("router.weight", 0), (up, 0), (down, 0)})),
            Demand(Permutation(spec.count), units, (spec.experts,)),
        ]
        if spec.activation == "relu":
            self.demands.append(Demand(Scale(1), units, (spec.experts, spec.count)))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        if self.spec.chosen is not None:
            best = weights.topk(self.spec.chosen, -1).indices
            weights = weights * torch.zeros_like(weights).scatter(-1, best, 1.0)
        act = ACTIVATIONS[self.spec.activation]
        if self.spec.kept != "whole":
            each = zip(weights.split(1, -1), self.up, self.down, strict=True)
            return sum(share * (act(x @ up) @ down) for share, up, down in each)  # type: ignore[return-value]
        inside = act(torch.einsum("btd,edu->bteu", x, self.up))
        return (weights.unsqueeze(-1) * torch.einsum("bteu,eud->bted", inside, self.down)).sum(-2)
