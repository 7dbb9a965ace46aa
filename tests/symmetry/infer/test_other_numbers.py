"""Examples in which an input is the same everywhere: others are drawn, so that nothing hides behind them."""

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.symmetry.infer.other_numbers import varied
from fusionlab.symmetry.inputs import Input


class Mixer(nn.Module):
    """Mixes the places of a text; the mean over them would let them change places were all ids the same."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.enter, self.leave = nn.Embedding(23, 10), nn.Linear(7, 12), nn.Linear(12, 7)
        self.head = nn.Linear(10, 6)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        return self.head((x + self.leave(torch.tanh(self.enter(x.mT))).mT).square().mean(1))


class Kept(nn.Module):
    """Units of which a mask keeps some."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 4)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)) * keep)


class Fussy(Kept):
    """Takes a mask of ones alone, as it says itself."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        if not bool(keep.all()):
            raise ValueError("nothing may be hidden")
        return super().forward(x, keep)


@pytest.mark.parametrize("number", [0, 1, 5])
def test_places_are_no_space_where_all_ids_of_an_example_are_the_same(number: int) -> None:
    found = fusionlab.blueprint(Mixer(), {"ids": torch.full((2, 7), number)})
    assert sorted(str(space.group) for space in found.spaces.values()) == ["S(10)", "S(12)", "Z2(1)"]
    assert found.inputs == (Input("ids", (7,), 23),)


@pytest.mark.parametrize("kind", [torch.bool, torch.long])
def test_units_behind_a_mask_of_ones_do_not_change_places(kind: torch.dtype) -> None:
    found = fusionlab.blueprint(Kept(), {"x": torch.randn(4, 6), "keep": torch.ones(4, 9, dtype=kind)})
    assert not found.spaces
    mask = found.inputs[1].random(50, torch.Generator().manual_seed(0))
    assert mask.dtype == kind
    assert mask[:, 0].all()
    assert not mask[:, 1:].bool().all(0).any(), "inputs of the twins' check differ too"


def test_an_input_that_takes_no_other_numbers_is_held_and_said() -> None:
    example = {"x": torch.randn(4, 6), "keep": torch.ones(4, 9, dtype=torch.bool)}
    found = fusionlab.blueprint(Fussy(), example)
    assert any("no other numbers for the input 'keep'" in note for note in found.notes)
    assert found.inputs[1].numbers == (True,) * 9


def test_numbers_that_differ_stay_as_they_are() -> None:
    example = {"x": torch.randn(2, 6), "keep": torch.tensor([[1] * 8 + [0], [0] * 8 + [1]])}
    found = varied(Kept(), example)
    assert found.batch["keep"] is example["keep"]
    assert (found.drawn, found.held) == ({}, ())
