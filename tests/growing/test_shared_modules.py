"""A module that stands in several places is grown under all of its names."""

import torch
from torch import Tensor, nn

import fusionlab

IDS = torch.randint(11, (3, 5), generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width + 1), nn.Linear(width + 1, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        inside: Tensor = self.down(torch.tanh(self.up(self.norm(x))))
        return x + self.scale * inside


class BlockTwice(nn.Module):
    """A block with its norm and its layer scale in the first place and in the third."""

    def __init__(self, width: int) -> None:
        super().__init__()
        block = Block(width)
        self.embedding, self.blocks = nn.Embedding(11, width), nn.ModuleList([block, Block(width), block])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def drawn(width: int) -> BlockTwice:
    """A model in float64 none of whose gains and biases is one or zero, whose blueprint is known."""
    torch.manual_seed(width)
    model = BlockTwice(width).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.rand_like(parameter)
    fusionlab.blueprint(model, {"ids": IDS})
    return model


def test_a_block_in_two_places_grows_in_both() -> None:
    small = drawn(6)
    grown = fusionlab.grow(small, drawn(9))
    assert grown.blocks[0] is grown.blocks[2]
    assert grown.head.in_features == 9
    torch.testing.assert_close(grown(IDS), small(IDS), rtol=1e-9, atol=1e-9)


class BesideATable(BlockTwice):
    """A model that has a table which it never looks at, as Switch Transformers do whose embeddings are not tied."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.shared = nn.Embedding(11, width)


def test_a_table_that_nothing_reads_grows_too() -> None:
    small, large = BesideATable(6).double().eval(), BesideATable(9).double()
    for model in (small, large):
        fusionlab.blueprint(model, {"ids": IDS})
    grown = fusionlab.grow(small, large)
    assert grown.shared.weight.shape == (11, 9)
    torch.testing.assert_close(grown(IDS), small(IDS), rtol=1e-9, atol=1e-9)
