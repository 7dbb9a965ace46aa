"""Mixtures of experts as users write them: experts in lists of modules or parameters, or taken from one tensor."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, EXPERTS, UNITS = 6, 4, 9
Activation = Callable[[Tensor], Tensor]


class Expert(nn.Module):
    def __init__(
        self, activation: Activation = torch.relu, normed: bool = False, width: int = WIDTH, units: int = UNITS
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if normed else nn.Identity()
        self.up, self.down, self.activation = nn.Linear(width, units), nn.Linear(units, width), activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(self.norm(x))))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, UNITS, bias=False), nn.Linear(WIDTH, UNITS)
        self.down = nn.Linear(UNITS, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Dense(nn.Module):
    """Every expert, by its share."""

    def __init__(
        self, make: Callable[[], nn.Module] = Expert, bias: bool = True, count: int = EXPERTS, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=bias)
        self.experts = nn.ModuleList(make() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        return sum(shares[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))  # type: ignore[return-value]


class Stacked(Dense):
    """The same, all outputs in one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], -2)
        return torch.einsum("...e,...ed->...d", self.router(x).softmax(-1), outputs)


class Chosen(Dense):
    """Two experts for each token, in a loop; those without a token are passed over."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == i)
            if len(rows):
                out.index_add_(0, rows, expert(x[rows]) * shares[rows, places, None])
        return out


class Masked(Dense):
    """The likeliest expert for each token, by masks."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.router(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            if bool((mask := chosen == i).any()):
                out[mask] = shares[mask, None] * expert(x[mask])
        return out


class Counted(Dense):
    """Tokens in the order of their experts, cut by how many each has: a graph holds for one such choice only."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.router(x).sigmoid().topk(2, -1)
        order = chosen.flatten().argsort()
        parts = x[order // 2].split(torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist())
        sorted_outputs = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        outputs = torch.empty_like(sorted_outputs)
        outputs[order] = sorted_outputs
        return (outputs.view(*chosen.shape, -1) * shares.unsqueeze(-1)).sum(1)


class Beside(Chosen):
    """A shared expert beside the others, and a correction of the choice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.correction = Gated(), nn.Parameter(torch.randn(EXPERTS) / 10)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).sigmoid()
        _, chosen = (scores + self.correction).topk(2, -1)
        shares = torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen))
        mixed = sum(shares[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return mixed + self.shared(x)  # type: ignore[no-any-return]


class InGroups(Dense):
    """Groups of neighbours are chosen by their two highest scores, then experts in those."""

    def __init__(self, count: int, groups: int, limit: int, make: Callable[[], nn.Module] = Expert) -> None:
        super().__init__(make, count=count)
        self.correction, self.groups, self.limit = nn.Parameter(torch.randn(count) / 10), groups, limit

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).sigmoid()
        by_group = (scores + self.correction).unflatten(-1, (self.groups, -1))
        kept = by_group.topk(2, -1)[0].sum(-1).topk(self.limit, -1)[1]
        out = torch.zeros_like(kept[..., :1].expand(*kept.shape[:-1], self.groups), dtype=torch.bool)
        barred = ~out.scatter(-1, kept, True)
        chosen = by_group.masked_fill(barred.unsqueeze(-1), -torch.inf).flatten(-2).topk(2, -1)[1]
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.where((chosen == number).any(-1))[0]
            if len(rows):
                mixed.index_add_(0, rows, expert(x[rows]) * scores[rows, number, None])
        return mixed


class Lists(nn.Module):
    """A list of layers and a list of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.up = nn.ModuleList(nn.Linear(WIDTH, UNITS) for _ in range(EXPERTS))
        self.down = nn.ParameterList(torch.randn(UNITS, WIDTH) / 3 for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1).unbind(-1)
        return sum(  # type: ignore[return-value]
            share[..., None] * (functional.gelu(up(x)) @ down)
            for share, up, down in zip(shares, self.up, self.down, strict=True)
        )


class ByNumber(nn.Module):
    """One tensor for all experts, from which a loop takes each; a router with rows for more of them."""

    def __init__(self, idle: int = 0) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS + idle)
        self.up = nn.Parameter(torch.randn(EXPERTS, UNITS, WIDTH) / 3)
        self.shift, self.down = (
            nn.Parameter(torch.randn(EXPERTS, UNITS)),
            nn.Parameter(torch.randn(EXPERTS + idle, WIDTH, UNITS)),
        )

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for i in range(len(self.up)):
            rows, places = torch.where(chosen == i)
            inside = functional.gelu(functional.linear(x[rows], self.up[i], self.shift[i]))
            out.index_add_(0, rows, functional.linear(inside, self.down[i]) * shares[rows, places, None])
        return out


class Different(Dense):
    """A function of its own in each expert."""

    def __init__(self) -> None:
        super().__init__()
        functions = (torch.relu, torch.tanh, functional.gelu, functional.silu)
        for expert, function in zip(self.experts, functions, strict=True):
            expert.activation = function


class Numbered(Dense):
    """A constant of its own behind each expert."""

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        return sum(shares[..., i : i + 1] * (expert(x) + i) for i, expert in enumerate(self.experts))  # type: ignore[return-value]


class Again(Dense):
    """One of the experts is read a second time."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.experts[0](x)


class Net(nn.Module):
    """Mixtures beside a stream, behind layer norms or not."""

    def __init__(self, *mixtures: nn.Module, normed: bool = False, labels: int = 3) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(5, WIDTH), nn.Linear(WIDTH, labels)
        self.mixtures = nn.ModuleList(mixtures)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) if normed else nn.Identity() for _ in mixtures)

    def forward(self, x: Tensor) -> Tensor:
        stream = self.enter(x)
        for mixture, norm in zip(self.mixtures, self.norms, strict=True):
            stream = stream + mixture(norm(stream))
        return self.head(torch.tanh(stream))


def example() -> dict[str, Tensor]:
    """Inputs of a `Net`."""
    return {"x": torch.randn(40, 5, generator=torch.Generator().manual_seed(3))}
