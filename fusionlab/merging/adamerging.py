"""AdaMerging (Yang et al., "AdaMerging: adaptive model merging for multi-task learning", 2024)."""

import itertools
from collections.abc import Container, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fusionlab.dtypes import in_types
from fusionlab.errors import InputError
from fusionlab.evaluation.wording import listing
from fusionlab.forward import refusing_misfit
from fusionlab.merging.ingredients import Ingredients, working_type
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, base_of, check_fraction, task_vectors
from fusionlab.models import aliases
from fusionlab.spreading import spread
from fusionlab.statistics.entropy import mean_entropy
from fusionlab.types import Batch

By = Literal["layer", "task"]


def _refuse(_: Sequence[float], steps: int, learning_rate: float, **__: Any) -> None:
    if steps < 0:
        raise InputError(f"steps is {steps}; expected 0 or more")
    check_fraction("learning_rate", learning_rate)


# Each model, a copy that gives logits, and its task vector; the merge of a step, its gradients, and what is returned.
@merge_method("adamerging", needs=("base", "inputs"), refuse=_refuse, holds=(5, 3))
def adamerging(
    ingredients: Ingredients, by: By = "layer", start: float = 0.3, steps: int = 50, learning_rate: float = 1e-2
) -> dict[str, Tensor]:
    """Task arithmetic whose coefficients make the merge sure of itself on inputs without labels.

    ``theta_base + sum_i c_i tau_i``, with the c_i that Adam finds for the least entropy of the merge's predictions:
    each model's inputs under its own head, and the mean over models. A step is one batch of every model. It tells the
    coefficients.

    Args:
        ingredients: classifiers (of tokens and of both ends of answers too) or language models, weights, base, inputs
            of each model, and how a model is made of a state. Coefficients start at `start` times the model's weight,
            relative to the mean weight; a model's entropy counts by weight.
        by: ``layer``, a coefficient for each parameter and model, as in the paper's layer-wise AdaMerging; or ``task``,
            one for each model.
        start: the coefficients at the start; the paper's 0.3.
        steps: of Adam, from 0 up, each a forward and a backward of every model. Batches are gone through over
            and over; of a data set that is read in order, each has examples from all of it.
        learning_rate: above 0, at most 1: about what a coefficient moves by in a step. The paper takes 500 steps of
            1e-3.

    Returns:
        The merged state, each tensor in the first model's dtype. Task vectors are all held in memory.

    Raises:
        InputError: numbers out of range, no inputs of a model, models that predict no classes (see
            `fusionlab.statistics.entropy`), or integer buffers that differ between the models.
    """
    assert ingredients.model is not None
    count, names = len(ingredients.states), ingredients.floating()
    batches = [spread(own, max(1, steps)) for own in ingredients.inputs]
    if not all(batches):
        raise InputError("adamerging was given no inputs of a model; expected at least one batch of each")
    # A tied parameter has the coefficients of its first name.
    tied = aliases(ingredients.states[0])
    changes = {name: task_vectors(ingredients, name) for name in names if name not in tied}
    begin = start * count * torch.tensor(ingredients.weights, dtype=torch.float32)
    groups = ["all"] if by == "task" else list(changes)
    device = next(iter(changes.values())).device
    found = {group: begin.clone().to(device).requires_grad_() for group in groups}

    def change(name: str) -> Tensor:
        first = tied.get(name, name)
        coefficients = found["all" if by == "task" else first]
        return torch.tensordot(coefficients.to(changes[first]), changes[first], dims=1)

    models = [
        _Entropy(_widened(ingredients.model(state, index), state)) for index, state in enumerate(ingredients.states)
    ]
    streams = [itertools.cycle(own) for own in batches]
    optimizer = torch.optim.Adam(found.values(), lr=learning_rate)
    base = base_of(ingredients)
    for _ in range(steps):
        optimizer.zero_grad()
        for model, stream, weight in zip(models, streams, ingredients.weights, strict=True):
            with torch.enable_grad():
                state = {f"model.{name}": base[name].to(changes[name]) + change(name) for name in changes}
                (weight * functional_call(model, state, (next(stream),))).backward()
        optimizer.step()
    ingredients.tell(_told(ingredients, torch.stack([one.detach().cpu() for one in found.values()])))
    with torch.no_grad():
        return add_to_base(ingredients, change)


def _told(ingredients: Ingredients, coefficients: Tensor) -> str:
    """The coefficient of each model's task vector, or their mean and range over parameters.

    Args:
        ingredients: all models.
        coefficients: shape ``(parameters, models)``, with one row where all parameters share theirs.
    """
    parts, is_shared = [], len(coefficients) == 1
    for index, column in enumerate(coefficients.T):
        around = "" if is_shared else f" ({column.min():.3g} to {column.max():.3g})"
        parts.append(f"{column.mean():.3g}{around} for {ingredients.called(index)}")
    over = "" if is_shared else f", in the mean over {len(coefficients)} parameters and from the least to the largest,"
    return f"Coefficients of the task vectors are{over} {listing(parts)}."


def _widened(model: nn.Module, merged: Container[str]) -> nn.Module:
    """A model whose parameters that are not merged, of a head of its own, are in the types that merged ones are in."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    kept = {name: one for name, one in tensors if name not in merged and one.is_floating_point()}
    return in_types(model, {name: working_type(one) for name, one in kept.items()})


class _Entropy(nn.Module):
    """The mean entropy of a model's predictions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)

    def forward(self, batch: Batch) -> Tensor:
        device = next(self.model.parameters()).device
        with refusing_misfit():
            return mean_entropy(self.model, {name: value.to(device) for name, value in batch.items()})
