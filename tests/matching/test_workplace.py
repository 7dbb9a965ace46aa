"""Matching on a device: products and decompositions run there, and what is found is what the processor finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fusionlab.inputs import Inputs
from fusionlab.matching import universe
from fusionlab.matching.align import align_states
from fusionlab.matching.align_models import align_models
from fusionlab.matching.options import MEAN, MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.recipe import recipe
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, blueprint
from tests.matching.elsewhere import ELSEWHERE, Remote, device
from tests.matching.test_team import llama, t5
from tests.parts import one_in
from tests.symmetry.models import random_model

WEIGHTS = replace(preset("weights"), temperatures=4, sweeps=2)
THERE = Workplace(ELSEWHERE)


def models(name: str, count: int = 2) -> list[nn.Module]:
    made = {"llama": llama, "t5": t5}
    return [made[name](seed) if name in made else random_model(name, seed) for seed in range(count)]


def refuse_apart(first: Alignment, second: Alignment) -> None:
    assert first.elements.keys() == second.elements.keys()
    for name, element in second.elements.items():
        assert not isinstance(first.elements[name], Remote), "on the processor, where alignments are kept"
        torch.testing.assert_close(first.elements[name], element, rtol=1e-6, atol=1e-9)


def test_the_device_is_strict() -> None:
    """What these tests stand on: a tensor of the processor does not meet one of the device; indices and numbers do."""
    here = torch.arange(4.0)
    with device() as calls:
        there = here.to(ELSEWHERE)
        assert there.device == ELSEWHERE
        assert (2 * there)[torch.tensor([1, 2])].cpu().tolist() == [2, 4]
        with pytest.raises(AssertionError, match="a tensor of the processor meets one of the device"):
            _ = there + here
        with pytest.raises(AssertionError, match="a tensor of the processor meets one of the device"):
            _ = torch.ones(2, 4) @ there
    assert calls["mul.Tensor"] == 1


@pytest.mark.parametrize(
    ("name", "options"),
    one_in(
        3,
        [
            ("bert-sequence", WEIGHTS),
            ("vit-classifier", preset("paper")),
            ("vit-classifier", replace(WEIGHTS, rescale="joint")),
            ("llama", replace(WEIGHTS, start="known", relative=0.5)),
            ("vit-classifier", replace(WEIGHTS, towards=MEAN, temperatures=2, sweeps=1)),
            ("t5", replace(WEIGHTS, towards=MEAN, temperatures=2, sweeps=1)),
        ],
    ),
)
def test_a_device_finds_what_the_processor_finds(
    monkeypatch: pytest.MonkeyPatch, name: str, options: MatchOptions
) -> None:
    """Gauge, annealing and ascent: nothing of them falls back to the processor but the assignments."""
    monkeypatch.setattr(universe, "ROUNDS", 2)  # random models take many, all alike
    given = models(name, 3 if options.towards == MEAN else 2)
    states, described = [model.state_dict() for model in given], blueprint(given[0])
    wanted = align_states(states, described, options)
    with device() as calls:
        found = align_states(states, described, options, place=THERE)
    for first, second in zip(found, wanted, strict=True):
        refuse_apart(first, second)
    products = sum(count for operation, count in calls.items() if operation.split(".")[0] in ("mm", "bmm", "addmm_"))
    assert products > 4
    assert calls["_linalg_svd"] > 0
    if "balanced" in options.gauge:
        assert calls["_linalg_eigh"] > 0


def test_activations_and_twins() -> None:
    """Passes over inputs run where the Trainer says, the rest on the device; a twin comes back to its model's place."""
    given = models("vit-classifier")
    described = blueprint(given[0])
    chosen = recipe("activations", sweeps=2, temperatures=4)
    inputs = Inputs.synthetic(given, 32)
    wanted = run(align_models(given, described, chosen, 1, inputs)).alignments
    with device() as calls:
        found = run(align_models(given, described, chosen, 1, inputs, place=THERE)).alignments
        twin = THERE.twin(found[0], given[0])
    refuse_apart(found[0], wanted[0])
    assert calls["_linalg_svd"] > 0
    for name, tensor in wanted[0].apply(given[0]).state_dict().items():
        assert twin.state_dict()[name].device.type == "cpu"
        torch.testing.assert_close(twin.state_dict()[name], tensor)


def test_without_a_device_nothing_is_copied() -> None:
    state = {"weight": torch.ones(2, 2)}
    assert HERE.brought(state) is state
    assert HERE.taken(state) is state


@pytest.mark.parametrize("device_name", ["cuda", "cuda:1"])
def test_a_gpu_is_given_copies_of_page_locked_memory(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: which memory is asked for, and that nobody waits for the copy."""
    locked: list[Tensor] = []
    copied: list[tuple[Tensor, torch.device, bool]] = []

    def lock(tensor: Tensor) -> Tensor:
        locked.append(tensor.clone())
        return locked[-1]

    def copy(tensor: Tensor, place: torch.device, non_blocking: bool = False) -> Tensor:
        copied.append((tensor, place, non_blocking))
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", lock)
    monkeypatch.setattr(Tensor, "to", copy)
    given, place = torch.ones(2, 2), torch.device(device_name)
    found = Workplace(place).brought({"weight": given})
    assert found["weight"] is locked[0]
    assert copied == [(locked[0], place, True)]
