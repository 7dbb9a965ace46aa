"""Places of layers: the cheapest rising sequence, found by dynamic programming."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fusionlab.errors import InputError
from fusionlab.growing.layers import Placement, layer_stacks, place, placements, renamed
from tests.symmetry.models import generator, laws


@laws
@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 100))
def test_no_rising_sequence_is_cheaper(layers: int, more: int, seed: int) -> None:
    cost = torch.rand(layers, layers + more, generator=generator(seed), dtype=torch.float64)
    found = place(cost)
    assert found is not None
    assert list(found) == sorted(set(found))
    prices = [
        sum(float(cost[layer, position]) for layer, position in enumerate(positions))
        for positions in itertools.combinations(range(layers + more), layers)
    ]
    assert sum(float(cost[i, p]) for i, p in enumerate(found)) == pytest.approx(min(prices))


def test_places_that_are_not_allowed_are_not_taken() -> None:
    cost = torch.tensor([[0.0, torch.inf, 5.0], [torch.inf, torch.inf, 1.0]])
    assert place(cost) == (0, 2)
    assert place(torch.tensor([[torch.inf, 0.0], [0.0, torch.inf]])) is None


class Nested(nn.Module):
    """Stages of layers."""

    def __init__(self, *depths: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.ModuleList(nn.Linear(2, 2) for _ in range(depth)) for depth in depths)


def test_stacks_inside_stacks_grow_by_themselves() -> None:
    found = placements(Nested(1, 2), Nested(3, 2))
    assert [(p.small, p.positions) for p in found] == [("stages", (0, 1)), ("stages.0", (2,)), ("stages.1", (0, 1))]
    assert [p.deepens for p in found] == [False, True, False]
    assert layer_stacks(Nested(1, 2)) == {"stages": 2, "stages.0": 1, "stages.1": 2}


@pytest.mark.parametrize(
    ("layers", "places", "expected"),
    [(4, 6, (1, 2, 4, 5)), (2, 6, (2, 5)), (3, 3, (0, 1, 2)), (1, 4, (3,)), (2, 3, (1, 2))],
)
def test_without_data_each_layer_ends_its_share(layers: int, places: int, expected: tuple[int, ...]) -> None:
    (found,) = placements(*(nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))) for count in (layers, places)))
    assert found.positions == expected


def test_a_name_follows_every_stack_that_it_lies_in() -> None:
    found = [Placement("a", "a", (1, 3), 4), Placement("a.1.b", "a.3.b", (2,), 3)]
    assert renamed("a.1.b.0.weight", found) == "a.3.b.2.weight"
    assert renamed("a.0.bias", found) == "a.1.bias"
    assert renamed("other.weight", found) == "other.weight"


def test_layers_of_other_kinds_are_refused() -> None:
    small, large = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.LayerNorm(2), nn.LayerNorm(2))
    with pytest.raises(InputError, match="layers of kinds that"):
        placements(small, large)
