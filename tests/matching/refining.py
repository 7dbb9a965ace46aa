"""Small models to refine alignments of, inputs, and how much of what they know is lost half way between them."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
)

from fusionlab.learning.distillation import distillation_loss, output_of, teacher_targets
from fusionlab.matching import learned
from fusionlab.matching.charts import Charts
from fusionlab.matching.coordinates import cayley
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from tests.symmetry.models import generator, random_model

Batches = list[dict[str, Tensor]]


def quiet(**settings: Any) -> Trainer:
    """A Trainer that leaves no files and prints nothing."""
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(accelerator="cpu", devices=1, enable_model_summary=False, **{**silent, **settings})


def folded(model: nn.Module) -> Blueprint:
    description = blueprint(model)
    return description.after_folding or description


def turned(description: Blueprint, size: float, seed: int = 0) -> Alignment:
    """A small random element of every continuous group."""
    charts = Charts(description, tuple(description.spaces.values()), 1).double()
    draw = generator(seed)
    with torch.no_grad():
        for parameter in charts.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        return Alignment(description, charts.elements()[0])


def inputs(model: nn.Module, count: int, batch: int = 16, seed: int = 0) -> Batches:
    """Batches of random inputs, without labels."""
    draw = generator(seed)
    return [{i.name: i.random(batch, draw) for i in blueprint(model).inputs} for _ in range(count)]


def mean_of(models: Sequence[nn.Module]) -> nn.Module:
    merged = copy.deepcopy(models[0])
    with torch.no_grad():
        for parameters in zip(merged.parameters(), *(m.parameters() for m in models), strict=True):
            parameters[0].copy_(torch.stack(parameters[1:]).mean(0))
    return merged


@torch.no_grad()
def excess(models: Sequence[nn.Module], alignments: Sequence[Alignment], batches: Batches) -> float:
    """How much worse the twins' mean does than the teachers' mean output itself (cross-entropy above its entropy)."""
    merged = mean_of([a.apply(m) for a, m in zip(alignments, models, strict=True)])
    total = 0.0
    for batch in batches:
        targets = teacher_targets(models, batch)
        best = -(targets.values * targets.values.clamp_min(1e-30).log()).sum(-1).mean()
        total += float(distillation_loss(output_of(merged, batch), targets, batch) - best)
    return total / len(batches)


def refined(models: Sequence[nn.Module], data: Any, anchor: int = 0, **changes: Any) -> list[Alignment]:
    """Refine from the identity of the folded blueprint."""
    description = folded(models[0])
    start = [Alignment.identity(description) for _ in models]
    return run(learned.refined(models, description, start, data, RefineOptions(**changes), anchor), quiet)


def planted(count: int = 2, size: float = 0.25) -> list[nn.Module]:
    """One small ViT in several bases that are a short way apart."""
    first = random_model("vit-classifier")
    description = folded(first)
    return [first, *(turned(description, size, seed).apply(first) for seed in range(1, count))]


def gpt2(**changes: Any) -> nn.Module:
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 20, "n_positions": 16, "vocab_size": 40}
    return GPT2LMHeadModel(GPT2Config(**sizes, **changes))


@torch.no_grad()
def labelled(model: nn.Module, batches: Batches) -> Batches:
    return [{**batch, "labels": output_of(model, batch).argmax(-1)} for batch in batches]


def rotation_left(make: Callable[[nn.Parameter], Optimizer], steps: int = 60) -> float:
    """The share of a squared distance from a rotation some degrees away that an optimizer leaves.

    Args:
        make: the optimizer of coordinates of one rotation, 6 wide, in float64; its rate falls as a cosine.
        steps: that it takes.
    """
    target = cayley(0.05 * torch.randn(1, 15, generator=generator(0), dtype=torch.float64), 6)
    coordinates = nn.Parameter(torch.zeros(1, 15, dtype=torch.float64))
    optimizer = make(coordinates)
    schedule = CosineAnnealingLR(optimizer, steps)

    def loss() -> Any:
        optimizer.zero_grad()
        found = (cayley(coordinates, 6) - target).square().sum()
        found.backward()
        return found

    before = float(loss())
    for _ in range(steps):
        optimizer.step(loss)
        schedule.step()
    return float(loss()) / before
