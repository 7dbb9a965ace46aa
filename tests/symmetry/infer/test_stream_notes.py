"""What the notes say gives a stream its basis."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.blueprint import infer

OUTPUT = "the residual stream is an output (output), so its basis is not free"
CONSTANT = "an input or a constant is added to the residual stream, so its basis is not free"


class Streamed(nn.Module):
    """A branch beside a stream, between what enters and what leaves."""

    def __init__(self, enter: Callable[[Tensor], Tensor], leave: nn.Module) -> None:
        super().__init__()
        self.first, self.branch, self.leave, self.enter = nn.Linear(6, 8), nn.Linear(8, 8), leave, enter

    def forward(self, x: Tensor) -> Tensor:
        stream = self.enter(self.first(x))
        return self.leave(stream + torch.tanh(self.branch(stream)))


@pytest.mark.parametrize(
    ("enter", "leave", "notes"),
    [
        (lambda x: x, nn.Identity(), (OUTPUT,)),
        (lambda x: x + torch.sin(torch.arange(8.0)), nn.Linear(8, 5), (CONSTANT,)),
        # That batches are added along, and returned, gives nothing a basis.
        (lambda x: x.cumsum(-1), nn.Linear(8, 5), ()),
        (lambda x: x, nn.Linear(8, 5), ()),
    ],
    ids=["returned", "with positions", "summed up", "free"],
)
def test_a_note_says_what_gives_a_stream_its_basis(
    enter: Callable[[Tensor], Tensor], leave: nn.Module, notes: tuple[str, ...]
) -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(3))
    assert infer(Streamed(enter, leave), {"x": x}, "own").notes == notes
