"""Models and batches for the Python calls, and how far models are apart."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fusionlab.evaluation.distance import parameter_distance
from tests.commands.small import bert, random_logits, timm_vit, vit

Make = Callable[[int], nn.Module]
MAKERS = {"vit": vit, "bert": bert, "timm": timm_vit}


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def same(first: nn.Module, second: nn.Module) -> bool:
    return unchanged(first, copied(second))


def distance(first: nn.Module, second: nn.Module) -> float:
    return parameter_distance(first.state_dict(), second.state_dict())


def closeness(first: nn.Module, second: nn.Module) -> float:
    """Largest difference in float64 logits, relative to the largest logit."""
    left, right = random_logits(first), random_logits(second)
    return float((left - right).abs().max() / right.abs().max())


def batches(sizes: tuple[int, ...] = (5, 3), classes: int = 10) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        {
            "pixel_values": torch.randn(size, 1, 8, 8, generator=generator),
            "labels": torch.randint(classes, (size,), generator=generator),
        }
        for size in sizes
    ]
