"""The inputs of a model that was traced: numbers, and ids of which it is known how many there are."""

import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.inputs import Input


class Masked(nn.Module):
    """Words beside numbers, some of which are hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.enter, self.leave = nn.Embedding(11, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, x: Tensor, bool_masked_pos: Tensor) -> Tensor:
        hidden = torch.tanh(self.words(ids) + self.enter(x))
        return self.leave(torch.where(bool_masked_pos[..., None] > 0, hidden, -hidden))


def test_ids_have_a_vocabulary_and_masks_two_values() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = {
        "ids": torch.randint(11, (3, 4), generator=draw),
        "x": torch.randn(3, 4, 6, generator=draw),
        "bool_masked_pos": torch.randint(2, (3, 4), generator=draw),
    }
    found = {one.name: one for one in infer(Masked(), inputs, "masked").inputs}
    assert found == {
        "ids": Input("ids", (4,), 11), "x": Input("x", (4, 6)), "bool_masked_pos": Input("bool_masked_pos", (4,), 2)
    }  # fmt: skip
