"""The published algorithm, written as published: layer by layer, head by head, with dense permutation matrices."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

State = dict[str, Tensor]


@dataclass(frozen=True)
class Names:
    """Where one layer's projections are; ``{}`` stands for the layer."""

    query: str
    key: str
    value: str
    output: str
    up: str
    down: str

    def at(self, layer: int) -> Names:
        return Names(**{part: name.format(layer) for part, name in asdict(self).items()})


TEXT = Names(
    query="roberta.encoder.layer.{}.attention.self.query",
    key="roberta.encoder.layer.{}.attention.self.key",
    value="roberta.encoder.layer.{}.attention.self.value",
    output="roberta.encoder.layer.{}.attention.output.dense",
    up="roberta.encoder.layer.{}.intermediate.dense",
    down="roberta.encoder.layer.{}.output.dense",
)
VISION = Names(
    query="vit.layers.{}.attention.q_proj",
    key="vit.layers.{}.attention.k_proj",
    value="vit.layers.{}.attention.v_proj",
    output="vit.layers.{}.attention.o_proj",
    up="vit.layers.{}.mlp.fc1",
    down="vit.layers.{}.mlp.fc2",
)


def match(source: State, anchor: State, names: Names, layers: int, heads: int) -> State:
    """The source's twin. Neither state is modified."""
    twin = {name: tensor.clone() for name, tensor in source.items()}
    for layer in range(layers):
        here = names.at(layer)
        _ffn(twin, anchor, here)
        _query_key(twin, anchor, here.query, here.key, heads)
        _value_output(twin, anchor, here, heads)
    return twin


def _ffn(twin: State, anchor: State, names: Names) -> None:
    up, bias, down = f"{names.up}.weight", f"{names.up}.bias", f"{names.down}.weight"
    cost = anchor[up] @ twin[up].T + torch.outer(anchor[bias], twin[bias]) + anchor[down].T @ twin[down]
    rows, columns = linear_sum_assignment(cost.numpy(), maximize=True)
    permutation = torch.zeros_like(cost)
    permutation[torch.from_numpy(rows), torch.from_numpy(columns)] = 1.0
    twin[up] = permutation @ twin[up]
    twin[bias] = permutation @ twin[bias]
    twin[down] = twin[down] @ permutation.T


def _bias_term(first: Tensor, second: Tensor) -> Tensor:
    return first.unsqueeze(0).T @ second.unsqueeze(0)


def _query_key(twin: State, anchor: State, query: str, key: str, heads: int) -> None:
    size = twin[f"{query}.weight"].shape[0] // heads
    rotated = {f"{n}.{p}": torch.zeros_like(twin[f"{n}.{p}"]) for n in (query, key) for p in ("weight", "bias")}
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        correlation = torch.zeros(size, size)
        for name in (query, key):
            weight, bias = f"{name}.weight", f"{name}.bias"
            correlation = correlation + twin[weight][rows] @ anchor[weight][rows].T
            correlation = correlation + _bias_term(twin[bias][rows], anchor[bias][rows])
        u, _, vh = torch.linalg.svd(correlation)
        rotation = u @ vh
        for name in (query, key):
            rotated[f"{name}.weight"][rows] = rotation.T @ twin[f"{name}.weight"][rows]
            rotated[f"{name}.bias"][rows] = twin[f"{name}.bias"][rows] @ rotation
    twin.update(rotated)


def _value_output(twin: State, anchor: State, names: Names, heads: int) -> None:
    weight, bias, out = f"{names.value}.weight", f"{names.value}.bias", f"{names.output}.weight"
    size = twin[weight].shape[0] // heads
    rotated = {name: torch.zeros_like(twin[name]) for name in (weight, bias, out)}
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        correlation = twin[weight][rows] @ anchor[weight][rows].T + twin[out][:, rows].T @ anchor[out][:, rows]
        u, _, vh = torch.linalg.svd(correlation + _bias_term(twin[bias][rows], anchor[bias][rows]))
        rotation = u @ vh
        rotated[weight][rows] = rotation.T @ twin[weight][rows]
        rotated[bias][rows] = twin[bias][rows] @ rotation
        rotated[out][:, rows] = twin[out][:, rows] @ rotation
    twin.update(rotated)
