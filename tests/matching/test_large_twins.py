"""Twins of large models: made anew in the backward pass, they are the same, and nothing of a model's size is kept."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fusionlab.matching import twins as module
from fusionlab.matching.twins import Twins
from fusionlab.symmetry import Alignment, blueprint
from tests.matching.test_team import llama, t5
from tests.symmetry.models import random_model

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "llama": llama,
    "t5, tied": t5,
    "bert, permuted": lambda seed: random_model("bert-sequence", seed),
}
POINTS = [[0.3, 0.7, 0.0], [0.2, 0.5, 0.3]]


def made(make: Callable[[int], nn.Module]) -> Twins:
    """Twins of three models in random bases, a step away from where they start, with units in another order."""
    models = [make(seed) for seed in range(3)]
    generator, described = torch.Generator().manual_seed(0), blueprint(models[0])
    found = Twins(models, [Alignment.random(described, generator) for _ in models], anchor=1)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    elements = {space.name: space.group.random(space.copies, generator) for space in found.discrete}
    found.reorder(0, elements, torch.optim.SGD(found.parameters()))
    return found


def gradients(twins: Twins) -> tuple[list[dict[str, Tensor]], list[Tensor]]:
    """Mixtures, and the gradients of a weighted sum of all their numbers."""
    mixtures = list(twins.mixtures(POINTS))
    generator = torch.Generator().manual_seed(1)
    total = sum(
        (tensor * torch.randn(tensor.shape, generator=generator)).sum()
        for mixture in mixtures
        for tensor in mixture.values()
        if tensor.requires_grad
    )
    assert isinstance(total, Tensor)
    total.backward()
    return mixtures, [p.grad for p in twins.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", MODELS)
def test_they_are_those_of_small_models(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Mixtures, their gradients, and the assignments that are proposed."""
    small = made(MODELS[name])
    monkeypatch.setattr(module, "LARGE", 0)
    large = made(MODELS[name])
    (mixtures, wanted), (again, found) = gradients(small), gradients(large)
    for one, other in zip(mixtures, again, strict=True):
        torch.testing.assert_close(other, one)
    assert wanted
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(large.proposed(0), small.proposed(0))


@pytest.mark.parametrize("is_large", [False, True])
def test_what_is_kept_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    """Of large models only what their coordinates need, of small ones more than a model."""
    monkeypatch.setattr(module, "LARGE", 0 if is_large else 2**40)
    twins, kept = made(llama), []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        tuple(twins.mixtures(POINTS[1:]))
    coordinates = sum(parameter.numel() for parameter in twins.parameters())
    whole = sum(parameter.numel() for parameter in llama(0).parameters())
    assert (sum(kept) > coordinates + whole) is not is_large
