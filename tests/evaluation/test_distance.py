"""Distances by space: every parameter counts exactly once."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fusionlab.evaluation.distance import distance_by_space, parameter_distance
from fusionlab.symmetry import blueprint
from tests.commands.small import bert, timm_vit, vit
from tests.merging.convolutions import resnet


@pytest.mark.parametrize("make", [vit, bert, timm_vit])
def test_squares_sum_to_the_whole(make: Any) -> None:
    """Over roles and layers, to the squared distance of all parameters."""
    first, second = make(0), make(1)
    found = distance_by_space(first.state_dict(), second.state_dict(), blueprint(first))
    whole = torch.cat([(p - q).flatten() for p, q in zip(first.parameters(), second.parameters(), strict=True)])
    assert parameter_distance(first.state_dict(), second.state_dict()) == pytest.approx(float(whole.detach().norm()))
    assert math.fsum(value**2 for value in found.values()) == pytest.approx(
        float(whole.detach().double().square().sum())
    )
    for role in ("attention.qk", "attention.vo", "ffn"):
        assert {layer for found_role, layer in found if found_role == role} - {None} == {0, 1}


def test_every_number_counts_once_and_where_it_belongs() -> None:
    """Of a ViT, with parameters moved one at a time."""
    model = vit(0)
    start = model.state_dict()
    at = "vit.layers.1."
    homes = {
        f"{at}attention.q_proj.weight": ("attention.qk", 1),
        f"{at}attention.k_proj.bias": ("attention.qk", 1),
        f"{at}attention.v_proj.weight": ("attention.vo", 1),
        f"{at}attention.o_proj.weight": ("attention.vo", 1),
        f"{at}mlp.fc1.weight": ("ffn", 1),
        f"{at}mlp.fc2.weight": ("ffn", 1),
        f"{at}mlp.fc2.bias": ("residual", None),
        "vit.embeddings.cls_token": ("residual", None),
        "classifier.weight": ("residual", None),
        "classifier.bias": ("other", None),
    }
    for name, tensor in start.items():
        moved = start | {name: tensor + 2}
        found = {key: value for key, value in distance_by_space(moved, start, blueprint(model)).items() if value}
        assert len(found) == 1
        ((home, value),) = found.items()
        assert value == pytest.approx(2 * math.sqrt(tensor.numel()), rel=1e-5)
        assert home == homes.get(name, home)


def test_fused_projections_are_divided() -> None:
    """timm's qkv holds three kinds of rows: queries and keys count for one role, values for another."""
    model = timm_vit(0)
    start: dict[str, Tensor] = dict(model.state_dict())
    weight = start["blocks.0.attn.qkv.weight"]
    offset = torch.cat([torch.full((16, 16), size) for size in (1.0, 2.0, 3.0)])
    found = distance_by_space(start | {"blocks.0.attn.qkv.weight": weight + offset}, start, blueprint(model))
    assert found["attention.qk", 0] == pytest.approx(math.sqrt(256 * (1 + 4)), rel=1e-5)
    assert found["attention.vo", 0] == pytest.approx(math.sqrt(256 * 9), rel=1e-5)
    assert sum(value > 0 for value in found.values()) == 2


def test_scalars_and_counters() -> None:
    """A scalar belongs to no space; an integer, such as the number of batches that BatchNorm saw, is no distance."""
    net = resnet(0)
    first, second = net.state_dict(), {name: tensor.clone() for name, tensor in net.state_dict().items()}
    second["resnet.embedder.embedder.normalization.num_batches_tracked"] += 4
    found = distance_by_space(first, second, blueprint(net))
    assert set(found.values()) == {0.0}
    assert {role for role, _ in found} == {"ffn", "ffn.scale", "residual", "other"}
    description = replace(blueprint(net), parameters={"scale": ()})
    states: list[dict[str, Tensor]] = [{"scale": torch.tensor(value)} for value in (1.0, 4.0)]
    assert distance_by_space(*states, description) == {("other", None): 3.0}
