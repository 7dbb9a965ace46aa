"""Modules of one's own over sequences: attention and recurrences, written out as no library's classes have them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.symmetry.infer.cases.sample import Sample, floats, own, tokens


class Einsum(nn.Module):
    """Attention in sums over indices, with heads as axes of the parameters and fewer keys than queries."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(8, 3, 4, 5))
        self.key, self.value = nn.Parameter(torch.randn(8, 3, 5)), nn.Parameter(torch.randn(8, 3, 7))
        self.out = nn.Parameter(torch.randn(3, 4, 7, 8))
        self.head = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        query = torch.einsum("btd,dghk->bghtk", x, self.query)
        key, value = torch.einsum("btd,dgk->bgtk", x, self.key), torch.einsum("btd,dgv->bgtv", x, self.value)
        weights = torch.einsum("bghtk,bgsk->bghts", query, key).softmax(-1)
        mixed = torch.einsum("bghts,bgsv->bghtv", weights, value)
        return self.head(x + torch.einsum("bghtv,ghvd->btd", mixed, self.out))


class Scan(nn.Module):
    """A linear recurrence step by step, with a decay for each channel and a gate on what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.gate = nn.Linear(6, 10, bias=False), nn.Linear(6, 10)
        self.decay = nn.Parameter(torch.randn(10))
        self.leave = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        entering, keep = self.enter(x), torch.sigmoid(self.decay)
        state, states = torch.zeros_like(entering[:, 0]), []
        for step in range(x.shape[1]):
            state = keep * state + entering[:, step]
            states.append(state)
        return self.leave(torch.stack(states, 1) * functional.silu(self.gate(x)))


class FusedAttention(nn.Module):
    """Queries, keys and values from one layer, the fused kernel, a gate for each head, a causal mask."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.qkv, self.out = nn.Linear(12, 3 * 4 * 5), nn.Linear(4 * 5, 12, bias=False)
        self.gate = nn.Linear(12, 4)
        self.head = nn.Linear(12, 7)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        if self.order == "kinds first":
            parts = self.qkv(x).view(batch, length, 3, 4, 5).permute(2, 0, 3, 1, 4)
            query, key, value = parts.unbind(0)
        else:
            query, key, value = self.qkv(x).view(batch, length, 4, 15).transpose(1, 2).chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed * torch.sigmoid(self.gate(x)).transpose(1, 2).unsqueeze(-1)
        return self.head(x + self.out(mixed.transpose(1, 2).reshape(batch, length, 20)))


class Gated(nn.Module):
    """A gated recurrent cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(19, 6), nn.GRUCell(6, 8), nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.table(ids)
        state = embedded.new_zeros(len(ids), 8)
        for step in range(ids.shape[1]):
            state = self.cell(embedded[:, step], state)
        return self.head(state)


class Recurrent(nn.Module):
    """A recurrent layer of torch, which keeps its parameters in flat lists."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(19, 6), kind(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.table(ids))[0])


SAMPLES: tuple[Sample, ...] = (
    own("einsum", Einsum, floats("x", 7, 8)),
    own("scan", Scan, floats("x", 7, 6)),
    own("fused attention, kinds first", FusedAttention, floats("x", 7, 12), "kinds first"),
    own("fused attention, heads first", FusedAttention, floats("x", 7, 12), "heads first"),
    own("gru cell", Gated, tokens("ids", high=19)),
    own("gru", Recurrent, tokens("ids", high=19), nn.GRU),
    own("lstm", Recurrent, tokens("ids", high=19), nn.LSTM),
)
