"""Groups that hold at the example's length alone are not claimed."""

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.symmetry.infer.other_lengths import longer, shorter


class Long(nn.Module):
    """Linear up to eight rows, and with a ReLU from there on; positions for as many as it is given."""

    def __init__(self, positions: int | None = None) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 4)
        self.places = None if positions is None else nn.Parameter(torch.randn(positions, 6))

    def forward(self, x: Tensor) -> Tensor:
        if self.places is not None:
            x = x + self.places[torch.arange(x.shape[1])]
        hidden = self.up(x)
        return self.down(hidden.relu() if x.shape[1] > 8 else hidden)


class Many(Long):
    """The same, of many inputs."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        return self.down(hidden.relu() if len(x) > 3 else hidden)


def groups(model: nn.Module, *shape: int) -> tuple[list[str], tuple[str, ...]]:
    found = fusionlab.blueprint(model, {"x": torch.randn(*shape)})
    return sorted(str(space.group) for space in found.spaces.values()), found.notes


@pytest.mark.parametrize(
    ("model", "shape"), [(Long(), (3, 8, 6)), (Many(), (3, 6)), (Many(), (2, 7, 6))], ids=["longer", "more", "rows"]
)
def test_a_group_that_fails_for_longer_or_more_inputs_is_not_claimed(model: nn.Module, shape: tuple[int, ...]) -> None:
    found, notes = groups(model, *shape)
    assert found == []
    assert "no symmetry of up.weight: it does not hold for longer or more inputs" in notes


def test_a_model_of_so_many_positions_is_asked_for_fewer() -> None:
    assert groups(Long(8), 3, 8, 6)[0] == ["GL(9)"], "no input can be longer"
    assert groups(Long(12), 3, 12, 6)[0] == ["R+(1)", "S(9)"], "with the ReLU it holds without it too"


def test_lengths_change_together_wherever_a_model_takes_that() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = {"ids": torch.randint(9, (3, 8)), "mask": torch.ones(3, 8, 8), "x": torch.randn(3, 5)}
    shapes = []

    def is_taken(batch: dict[str, Tensor]) -> bool:
        shapes.append({name: tuple(x.shape) for name, x in batch.items()})
        return batch["x"].shape[1] == 5

    changed = longer(inputs, draw, is_taken)
    assert changed is not None
    assert {name: tuple(x.shape) for name, x in changed.items()} == {"ids": (6, 16), "mask": (6, 16, 16), "x": (6, 5)}
    assert len(shapes) == 2, "number and length at once, then the width, which is refused"
    assert shorter(inputs, draw, lambda batch: False) is None


def test_a_text_keeps_its_end() -> None:
    """What is read at the token that ends a text would not be seen without it."""
    ids, seen = torch.tensor([[1, 2, 3, 9], [4, 5, 6, 9]]), []
    for resized in (shorter, longer):
        resized({"ids": ids}, torch.Generator(), lambda batch: seen.append(batch["ids"]) is None)
    assert {len(found[0]) for found in seen} == {2, 8}
    assert all(bool((found[:, -1] == 9).all()) for found in seen)
