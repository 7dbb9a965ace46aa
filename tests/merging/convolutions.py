"""Small random nets of convolutions, with BatchNorm of every kind and without."""

from __future__ import annotations

import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetForImageClassification

from fusionlab.batch_norm import batch_norms
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.groups import Permutation


def randomized(model: nn.Module, seed: int) -> nn.Module:
    """Give parameters and running statistics random numbers, gains of both signs among them."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
            if parameter.ndim > 1:
                parameter.div_(parameter[0].numel() ** 0.5)
            else:
                # Far from 0, so that no channel of a norm is silent.
                parameter.copy_(parameter.sign() * (0.5 + parameter.abs() / 2))
        for norm in batch_norms(model).values():
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.copy_(torch.randn(norm.num_features, generator=draw))
            norm.running_var.copy_(0.2 + torch.rand(norm.num_features, generator=draw))
    return model.eval()


def resnet(seed: int = 0, layer_type: str = "basic", activation: str = "relu") -> nn.Module:
    """A ResNet of transformers in float64: two stages, a shortcut with a convolution, for grey images."""
    # A bottleneck is a quarter as wide.
    sizes = [6, 8] if layer_type == "basic" else [20, 24]
    config = ResNetConfig(
        num_channels=1, embedding_size=6, hidden_sizes=sizes, depths=[2, 1], layer_type=layer_type, num_labels=10,
        hidden_act=activation,
    )  # fmt: skip
    return randomized(ResNetForImageClassification(config).double(), seed)


def mixed(seed: int = 0) -> nn.Module:
    """A net whose norms hold their activation, have no gain, and come after a linear map, in float64."""
    return randomized(
        nn.Sequential(
            nn.Conv2d(1, 6, 3, bias=False), BatchNormAct2d(6), nn.Conv2d(6, 5, 3, stride=2),
            nn.BatchNorm2d(5, affine=False), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 7),
            nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 10),
        ).double(),
        seed,
    )  # fmt: skip


def plain(seed: int = 0) -> nn.Module:
    """A net without norms, as VGG11 was merged by the paper, in float64."""
    return randomized(
        nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 10),
        ).double(),
        seed,
    )  # fmt: skip


def images(*counts: int, size: int = 8, seed: int = 0) -> list[dict[str, Tensor]]:
    """Batches of random grey images, with labels."""
    draw = torch.Generator().manual_seed(seed)
    return [
        {
            "pixel_values": torch.randn(count, 1, size, size, generator=draw, dtype=torch.float64),
            "labels": torch.randint(10, (count,), generator=draw),
        }
        for count in counts
    ]


def permuted(description: Blueprint, seed: int = 3) -> Alignment:
    """A random order of all channels, without the factors that a ReLU lets pass."""
    drawn = Alignment.random(description, torch.Generator().manual_seed(seed))
    orders = {n: e for n, e in drawn.elements.items() if isinstance(description.spaces[n].group, Permutation)}
    return Alignment(description, orders)
