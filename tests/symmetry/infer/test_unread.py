"""What guessed inputs do not reach may stay as it is only where no other input would have reached it."""

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.trace import Traced, trace
from fusionlab.symmetry.infer.unread import may_be_unread


class Net(nn.Module):
    """Two experts of which one is chosen, and whatever else is there but not used."""

    def __init__(self, used: int = 2, **unused: nn.Module) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.used = used
        for name, module in unused.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        for expert in self.experts[: self.used]:
            x = torch.tanh(expert(x))
        return x


def traced(net: Net) -> Traced:
    return trace(net, {"x": torch.randn(3, 5, generator=torch.Generator().manual_seed(0))}, 0)


@pytest.mark.parametrize(
    ("net", "complete", "incomplete"),
    [
        (Net(), True, True),
        (Net(pooler=nn.Linear(5, 5)), True, False),
        (Net(slope=nn.PReLU(1)), True, True),
        (Net(norm=nn.LayerNorm(40)), True, False),
        (Net(used=1), False, False),
        (Net(token_type_embeddings=nn.Embedding(2, 5)), False, False),
        (Net(query_global=nn.Linear(5, 5)), False, False),
    ],
    ids=[
        "all is read",
        "a pooler",
        "a few numbers",
        "many numbers",
        "an expert",
        "kinds of tokens",
        "tokens seen by all",
    ],
)
def test_matrices_that_other_inputs_reach_must_be_read(net: Net, complete: bool, incomplete: bool) -> None:
    found = traced(net)
    assert may_be_unread(found, is_complete=True) == complete
    assert may_be_unread(found, is_complete=False) == incomplete


def test_what_a_model_writes_itself_may_be_unread() -> None:
    """I-BERT keeps weights that it has rounded beside each weight, and reads them only where it computes with those."""
    net = Net()
    net.register_buffer("token_type_embeddings_rounded", torch.ones(2, 5))
    net.register_buffer("rounded", torch.ones(40, 5))
    found = traced(net)
    for is_complete in (True, False):
        assert not may_be_unread(found, is_complete)
        assert may_be_unread(found, is_complete, {"token_type_embeddings_rounded", "rounded"})
