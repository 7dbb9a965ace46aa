"""Networks on sequences of tokens: a table, parts beside a stream, a head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from fusionlab.symmetry.groups import Group, Invertible, Orthogonal, OrthogonalFixingOnes, Permutation, Scale, Signs
from tests.symmetry.infer.networks.demand import Demand, Place, linear, within
from tests.symmetry.infer.networks.parts import ACTIVATIONS, AttentionSpec, ExpertsSpec, UnitsSpec

VOCABULARY, LENGTH, CLASSES = 13, 5, 4
# A parameter by a second name.
TIED = frozenset({"head.weight"})
# By name: subtracts the mean; has a gain.
NORMS = {
    "none": (False, False),
    "layer": (True, True),
    "layer written out": (True, True),
    "rms": (False, True),
    "rms written out": (False, True),
    "rms of one and more": (False, True),
    "rms without gain": (False, False),
}


class WrittenOut(nn.Module):
    """A norm made of means and roots; `kind` is one of `NORMS`."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        if NORMS[kind][1]:
            self.weight = nn.Parameter(torch.zeros(width) if kind == "rms of one and more" else torch.ones(width))
        if kind == "layer written out":
            self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "layer written out":
            x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        match self.kind:
            case "layer written out":
                return x * self.weight + self.bias
            case "rms of one and more":
                return x * (1 + self.weight)
            case "rms without gain":
                return x
        return self.weight * x


def norm(kind: str, width: int) -> nn.Module:
    """One of `NORMS`."""
    match kind:
        case "none":
            return nn.Identity()
        case "layer":
            return nn.LayerNorm(width)
        case "rms":
            return nn.RMSNorm(width)
    return WrittenOut(kind, width)


@dataclass(frozen=True)
class TextNetwork:
    """A network on tokens.

    Attributes:
        width: of the stream.
        parts: one after the other.
        norm: one of `NORMS`, the same everywhere.
        place: of the norms, before a part or after the sum.
        skip: whether a part is added to the stream or takes its place.
        tied: the head is the table of tokens.
        positions: a table of positions is added.
        scaled: what parts add to a stream of tied tables is scaled, feature by feature.
    """

    width: int
    parts: tuple[AttentionSpec | UnitsSpec | ExpertsSpec, ...]
    norm: str
    place: Literal["before", "after"]
    skip: bool
    tied: bool
    positions: bool
    scaled: bool = False

    @property
    def has_scales(self) -> bool:
        """Only where gains cannot be folded: there they have factors."""
        return self.scaled and self.tied and self.skip

    def build(self) -> nn.Module:
        return Text(self)

    def inputs(self, generator: torch.Generator, batch: int = 3, length: int = LENGTH) -> dict[str, Tensor]:
        return {"ids": torch.randint(VOCABULARY, (batch, length), generator=generator)}

    def demands(self) -> list[Demand]:
        """Every space that must be found."""
        return [*self._of_parts(), *self._of_streams()]

    def _of_parts(self) -> list[Demand]:
        parts = Text(self).parts
        return [demand.inside(f"parts.{i}") for i, part in enumerate(parts) for demand in part.demands]

    def _of_streams(self) -> list[Demand]:
        model, before = Text(self), self.place == "before"
        streams = [_Stream({("table.weight", 1)} | ({("positions", 1)} if self.positions else set()))]
        for i, part in enumerate(model.parts):
            own = {f"norms.{i}.{name}" for name, _ in model.norms[i].named_parameters()}
            streams[-1].places |= within(f"parts.{i}", part.reads)
            if before:
                streams[-1].read_through(own, self.norm)
            if not self.skip:
                streams.append(_Stream(set()))
            streams[-1].places |= within(f"parts.{i}", part.writes)
            if self.has_scales:
                streams[-1].vectors.add(f"scales.{i}")
                streams[-1].factors.append({(f"scales.{i}", 0)} | within(f"parts.{i}", part.writes))
            if before:
                vectors = {(name, 0) for name in own}
                streams[0 if self.skip else -2].factors += [vectors | within(f"parts.{i}", part.reads)] if own else []
            if not before:
                streams[-1].read_through(own, self.norm)
                # What is normed is added to again by the next part.
                streams[-1].keeps_gains |= self.skip and i + 1 < len(self.parts)
        if before:
            streams[-1].read_through({f"last.{name}" for name, _ in model.last.named_parameters()}, self.norm)
        if not self.tied:
            streams[-1].places |= linear("head", model.head, 1)
        elif self.skip:
            streams[-1].is_tied = streams[-1].keeps_gains = True
        else:
            # The table writes to the first stream and reads the last, so that one basis is that of both.
            first, last = streams.pop(0), streams.pop()
            both = _Stream(first.places | last.places, first.vectors | last.vectors, {*first.norms, *last.norms})
            both.factors = [*first.factors, *last.factors]
            both.keeps_gains = True
            streams.append(both)
        if not before and self.skip and not self.tied:
            last = {(name, 0) for name in own}
            streams[-1].factors += [last | {("head.weight", 1)}] if last else []
        free = TIED if self.tied else frozenset[str]()
        return [demand for stream in streams for demand in stream.demands(self.width, free)]


@dataclass
class _Stream:
    """All that is added up, read and written in one basis.

    Attributes:
        places: its linear maps.
        vectors: what norms multiply it with and add.
        norms: the kinds through which it is read.
        is_tied: one table writes and reads it.
        keeps_gains: some gain cannot be folded.
        factors: by gain what it takes a factor up against, itself and its bias included.
    """

    places: set[Place]
    vectors: set[str] = field(default_factory=set)
    norms: set[str] = field(default_factory=set)
    is_tied: bool = False
    keeps_gains: bool = False
    factors: list[set[Place]] = field(default_factory=list)

    def read_through(self, vectors: set[str], kind: str) -> None:
        self.vectors |= vectors
        self.norms |= {kind} - {"none"}

    def demands(self, width: int, free: frozenset[str]) -> list[Demand]:
        """What acts on it; parameters in `free` may be said to be touched or not."""
        centred = any(NORMS[kind][0] for kind in self.norms)
        found = []
        if self.vectors and not centred:
            # Signs move no gain.
            found.append(Demand(Signs(1), frozenset(self.places), (width,), free=free))
        if self.vectors and self.keeps_gains:
            at = self.places | {(name, 0) for name in self.vectors}
            if centred:
                # Signs, which a norm that subtracts the mean does not pass, would lie on the same stretches.
                scale = Scale(1, signed=True)
                found += [Demand(scale, frozenset(factor), (width,), free=free) for factor in self.factors]
            return [*found, Demand(Permutation(width), frozenset(at), free=free)]
        group: Group = Orthogonal(width) if self.norms or self.is_tied else Invertible(width)
        if centred:
            group = OrthogonalFixingOnes(width)
        free = free | frozenset(self.vectors)
        return [*found, Demand(group, frozenset(self.places), folded=bool(self.vectors), free=free)]


class Text(nn.Module):
    def __init__(self, spec: TextNetwork) -> None:
        super().__init__()
        self.spec = spec
        self.table = nn.Embedding(VOCABULARY, spec.width)
        if spec.positions:
            self.positions = nn.Parameter(torch.randn(LENGTH, spec.width))
        self.parts = nn.ModuleList([part.part(spec.width, LENGTH) for part in spec.parts])
        self.norms = nn.ModuleList([norm(spec.norm, spec.width) for _ in spec.parts])
        self.last = norm(spec.norm if spec.place == "before" else "none", spec.width)
        self.scales = nn.ParameterList([torch.ones(spec.width) for _ in spec.parts] if spec.has_scales else [])
        if spec.tied:
            self.head = nn.Linear(spec.width, VOCABULARY, bias=False)
            self.head.weight = self.table.weight
        else:
            self.head = nn.Linear(spec.width, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        if self.spec.positions:
            x = x + self.positions[: ids.shape[1]]
        for i, (part, norm_) in enumerate(zip(self.parts, self.norms, strict=True)):
            found = part(norm_(x) if self.spec.place == "before" else x)
            found = self.scales[i] * found if self.spec.has_scales else found
            x = x + found if self.spec.skip else found
            x = norm_(x) if self.spec.place == "after" else x
        return self.head(self.last(x))


attentions = st.builds(
    AttentionSpec,
    heads=st.sampled_from([3, 2, 1]),
    sharing=st.sampled_from([1, 2, 3]),
    inner=st.sampled_from([4, 6]),
    value=st.sampled_from([4, 5]),
    layout=st.sampled_from(["separate", "fused", "fused by head"]),
    bias=st.booleans(),
    positions=st.sampled_from(["none", "half", "interleaved", "relative"]),
    norms=st.sampled_from([False, False, True]),
    causal=st.booleans(),
)
units = st.builds(
    UnitsSpec,
    count=st.sampled_from([7, 8, 12]),
    activation=st.sampled_from(list(ACTIVATIONS)),
    gate=st.sampled_from(["none", "apart", "fused"]),
    bias=st.booleans(),
)
experts = st.builds(
    ExpertsSpec,
    kept=st.sampled_from(["whole", "by number", "lists"]),
    experts=st.sampled_from([3, 4]),
    count=st.sampled_from([4, 5]),
    activation=st.sampled_from(["gelu", "relu"]),
    chosen=st.sampled_from([None, 2]),
)
text_networks = st.builds(
    TextNetwork,
    width=st.sampled_from([8, 9, 6]),
    parts=st.lists(st.one_of(attentions, units, experts), min_size=1, max_size=2).map(tuple),
    norm=st.sampled_from(list(NORMS)),
    place=st.sampled_from(["before", "after"]),
    skip=st.sampled_from([True, True, False]),
    tied=st.booleans(),
    positions=st.booleans(),
    scaled=st.booleans(),
)
