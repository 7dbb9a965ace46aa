"""Parameters joined to stacks and taken apart again."""

import torch

from fusionlab.symmetry.stacks import apart, entries_of, stacked

STACKS = {"experts.*.up": ("experts.0.up", "experts.1.up"), "experts.*.down": ("experts.0.down", "experts.1.down")}


def state() -> dict[str, torch.Tensor]:
    names = ("enter", "experts.0.up", "experts.0.down", "experts.1.up", "experts.1.down", "head")
    return {name: torch.full((2, 3) if name.endswith("up") else (3,), float(i)) for i, name in enumerate(names)}


def test_entries_are_one_tensor_in_the_place_of_the_first() -> None:
    found = stacked(state(), STACKS)
    assert list(found) == ["enter", "experts.*.up", "experts.*.down", "head"]
    assert found["experts.*.up"].shape == (2, 2, 3)
    assert found["experts.*.up"][1].eq(3).all()
    assert stacked(found, STACKS) is found


def test_a_state_without_some_entries_keeps_the_others() -> None:
    part = {name: tensor for name, tensor in state().items() if name != "experts.1.down"}
    assert list(stacked(part, STACKS)) == ["enter", "experts.*.up", "experts.0.down", "head"]
    assert stacked({"head": part["head"]}, STACKS).keys() == {"head"}


def test_taken_apart_they_are_what_they_were_and_gradients_pass() -> None:
    whole = {name: tensor.requires_grad_() for name, tensor in stacked(state(), STACKS).items()}
    back = apart(whole, STACKS)
    assert back.keys() == state().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state().items())
    back["experts.1.up"].sum().backward()
    gradient = whole["experts.*.up"].grad
    assert gradient is not None
    assert gradient[1].eq(1).all()
    assert not gradient[0].any()


def test_names_of_a_model() -> None:
    assert entries_of(["enter", "experts.*.up"], STACKS) == ["enter", "experts.0.up", "experts.1.up"]
