"""Experts in lists, or taken from a tensor by number, change places with their router: exact, found again, no more."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.roles import Role
from tests.parts import one_in
from tests.symmetry.infer import expert_lists as nets
from tests.symmetry.infer.planted import distance_left

EXACT = 1e-9
MIXTURES: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: nets.Net(nets.Dense()),
    "in one tensor": lambda: nets.Net(nets.Stacked()),
    "chosen": lambda: nets.Net(nets.Chosen()),
    "masked": lambda: nets.Net(nets.Masked()),
    "counted": lambda: nets.Net(nets.Counted()),
    "beside a shared one": lambda: nets.Net(nets.Beside()),
    "gated, no router bias": lambda: nets.Net(nets.Dense(nets.Gated, bias=False)),
    "two layers": lambda: nets.Net(nets.Chosen(nets.Gated), nets.Chosen(nets.Gated), normed=True),
    "as many labels as experts": lambda: nets.Net(nets.Dense(), labels=nets.EXPERTS),
    "as many experts as features": lambda: nets.Net(nets.Dense(count=nets.WIDTH)),
    "two lists": lambda: nets.Net(nets.Lists()),
    "by number": lambda: nets.Net(nets.ByNumber()),
}


def inferred(make: Callable[[], nn.Module]) -> tuple[nn.Module, Blueprint]:
    torch.manual_seed(0)
    model = make().double().eval()
    return model, infer(model, nets.example(), "mixture")


@torch.no_grad()
def change(model: nn.Module, found: Blueprint) -> float:
    """The largest change of the outputs by a random element, relative to the largest, on other inputs."""
    twin = Alignment.random(found, torch.Generator().manual_seed(1)).apply(model)
    x = torch.randn(90, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    before = model(x)
    return float((twin(x) - before).abs().max() / before.abs().max())


@pytest.mark.parametrize("name", one_in(2, MIXTURES))
def test_experts_change_places_with_their_router(name: str) -> None:
    model, found = inferred(MIXTURES[name])
    experts = [space for space in found.spaces.values() if space.role == Role.EXPERTS]
    layers = len(model.mixtures)
    count = model.mixtures[0].router.out_features
    assert [space.group for space in experts] == [Permutation(count)] * layers
    units = [space for space in found.spaces.values() if space.role == Role.UNITS and space.copies]
    assert [(space.group, space.index) for space in units] == [(Permutation(nets.UNITS), (e.name,)) for e in experts]
    for space, layer in zip(experts, range(layers), strict=True):
        rows = {parameter for parameter in found.touching([space.name]) if parameter.startswith("mixtures")}
        own = {parameter for parameter in found.parameters if parameter.startswith(f"mixtures.{layer}.")}
        assert rows == {parameter for parameter in own if ".shared." not in parameter}
    assert change(model, found) < EXACT
    assert distance_left(found, dict(found.stacked(model.state_dict()))) < 1e-7
    assert sorted(found.names) == sorted(model.state_dict())


@pytest.mark.parametrize(("count", "groups", "limit"), one_in(2, [(6, 3, 2), (8, 2, 1), (8, 4, 2)]))
def test_experts_of_groups_change_places_with_their_groups(count: int, groups: int, limit: int) -> None:
    """And inside of them; an expert that changed its group would be chosen with others."""
    model, found = inferred(lambda: nets.Net(nets.InGroups(count, groups, limit, nets.Gated)))
    outer, inner = (space for space in found.spaces.values() if space.role == Role.EXPERTS)
    assert (outer.group, outer.index) == (Permutation(groups), ())
    assert (inner.group, inner.index) == (Permutation(count // groups), (outer.name,))
    units = [s for s in found.spaces.values() if s.role == Role.UNITS and s.copies]
    assert [(s.group, s.index) for s in units] == [(Permutation(nets.UNITS), (outer.name, inner.name))]
    rows = {name for name in found.touching([inner.name]) if name.startswith("mixtures")}
    assert rows == {name for name in found.parameters if name.startswith("mixtures")}
    assert change(model, found) < EXACT
    assert distance_left(found, dict(found.stacked(model.state_dict()))) < 1e-7
    assert sorted(found.names) == sorted(model.state_dict())


def test_a_router_with_rows_for_more_than_the_experts() -> None:
    """As of experts that hand their tokens on; what is stored for them and never read stays."""
    model, found = inferred(lambda: nets.Net(nets.ByNumber(idle=2)))
    assert [s.group for s in found.spaces.values() if s.role == Role.EXPERTS] == [Permutation(nets.EXPERTS)]
    assert change(model, found) < EXACT


@pytest.mark.parametrize("make", [nets.Different, nets.Numbered, nets.Again])
def test_experts_that_are_told_apart_keep_their_order(make: Callable[[], nn.Module]) -> None:
    model, found = inferred(lambda: nets.Net(make()))
    assert found.stacks == {}
    assert not [space for space in found.spaces.values() if space.role == Role.EXPERTS]
    assert change(model, found) < EXACT
    units = [space for space in found.spaces.values() if space.group == Permutation(nets.UNITS)]
    assert len(units) == nets.EXPERTS


def test_the_stream_matters_more_than_the_order_of_experts_with_norms_of_their_own() -> None:
    """Gains of all experts in one stack are not folded, without which the stream has no rotations."""

    class Normed(nets.Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            stream = self.enter(x)
            for mixture in self.mixtures:
                stream = stream + mixture(stream)
            return self.head(nn.functional.layer_norm(stream, stream.shape[-1:]))

    model, found = inferred(lambda: Normed(nets.Dense(lambda: nets.Expert(nn.functional.gelu, normed=True))))
    assert found.after_folding is not None
    assert found.after_folding.dimension >= 10
    assert change(model, found.after_folding) < EXACT


def test_a_list_of_layers_is_no_list_of_experts() -> None:
    """Each layer reads what the one before wrote, even where some dimension is as long as the list."""
    model, found = inferred(lambda: nets.Net(nets.Expert(), nets.Expert(), labels=2))
    assert found.stacks == {}
    assert change(model, found) < EXACT


def test_a_state_with_and_without_stacks_moves_alike() -> None:
    model, found = inferred(MIXTURES["dense"])
    alignment, state = Alignment.random(found), model.state_dict()
    moved = alignment.apply(state)
    assert list(moved) == list(state)
    assert squared_distance(found.stacked(moved), alignment.apply(dict(found.stacked(state)))) == 0
    back = alignment.inverse().apply(moved)
    assert squared_distance(back, state) < 1e-20 * squared_distance(moved, {n: 0 * x for n, x in state.items()})
