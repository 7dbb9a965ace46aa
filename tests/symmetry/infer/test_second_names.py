"""Modules that stand in several places: gauges and alignments say the same of all names of a tensor."""

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.infer.second_names import second_names

IDS = {"ids": torch.randint(11, (3, 5), generator=torch.Generator().manual_seed(0))}
IMAGES = {"image": torch.randn(3, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}


class Words(nn.Module):
    """A residual stream between words and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(11, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def branches(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.branches(self.embedding(ids))))
        return logits


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 7), nn.Linear(7, 6)
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        inside: Tensor = self.down(torch.tanh(self.up(self.norm(x))))
        return x + self.scale * inside


class BlockTwice(Words):
    """A block with its norm and its layer scale under two names."""

    def __init__(self) -> None:
        super().__init__()
        block = Block()
        self.blocks = nn.ModuleList([block, Block(), block])

    def branches(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class NormTwice(Words):
    """One norm under two names in front of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.RMSNorm(6)
        self.second = self.first
        self.up, self.down = (nn.ModuleList(nn.Linear(*sizes) for _ in range(2)) for sizes in ((6, 7), (7, 6)))

    def branches(self, x: Tensor) -> Tensor:
        for norm, up, down in zip((self.first, self.second), self.up, self.down, strict=True):
            x = x + down(torch.tanh(up(norm(x))))
        return x


class LayerTwice(NormTwice):
    """A norm and its layer under two names, with an adapter beside each call."""

    def __init__(self) -> None:
        super().__init__()
        self.up[1] = self.up[0]
        self.adapters = nn.ModuleList(nn.Linear(6, 7, bias=False) for _ in range(2))

    def branches(self, x: Tensor) -> Tensor:
        for norm, up, beside, down in zip((self.first, self.second), self.up, self.adapters, self.down, strict=True):
            y = norm(x)
            x = x + down(torch.tanh(up(y) + beside(y)))
        return x


class BatchNormTwice(nn.Module):
    """Running means and variances under two names."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.first, self.blocks, self.head = nn.Conv2d(3, 6, 3), nn.ModuleList([block] * 2), nn.Linear(6, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first(image)
        for block in self.blocks:
            x = x + block(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


EVERY = [(BlockTwice, IDS), (NormTwice, IDS), (LayerTwice, IDS), (BatchNormTwice, IMAGES)]
each = pytest.mark.parametrize(("kind", "inputs"), EVERY, ids=[kind.__name__ for kind, _ in EVERY])


def drawn(kind: type[nn.Module], seed: int) -> nn.Module:
    """A model in float64 none of whose gains, biases and statistics is one or zero."""
    torch.manual_seed(seed)
    model = kind().double().eval()
    for x in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
        x.data += 0.3 * torch.rand_like(x)
    return model


@each
def test_every_name_of_a_tensor_is_told_the_same(kind: type[nn.Module], inputs: dict[str, Tensor]) -> None:
    """In every gauge a random element leaves one tensor under all names, and the outputs as they were."""
    model = drawn(kind, 1)
    found = blueprint(model, inputs)
    assert found.same == second_names(model)
    assert found.in_gauge(("folded",)).dimension > 0
    for described in (found, found.in_gauge(("folded",)), found.in_gauge(("folded", "biases"))):
        state = dict(model.state_dict())
        if described.folded:
            state = fold(state, described)
        if described.unbiased:
            state = clear_biases(state, described)
        state = Alignment.random(described, torch.Generator().manual_seed(2)).apply(state)
        for name, first in described.same.items():
            torch.testing.assert_close(state[name], state[first])
        twin = drawn(kind, 2)
        twin.load_state_dict(state)
        torch.testing.assert_close(twin(**inputs), model(**inputs), rtol=1e-9, atol=1e-9)


@each
def test_a_matched_twin_computes_the_same(kind: type[nn.Module], inputs: dict[str, Tensor]) -> None:
    anchor, other = drawn(kind, 1), drawn(kind, 2)
    blueprint(anchor, inputs)
    _, twin = fusionlab.align([anchor, other], preset="weights")
    torch.testing.assert_close(twin(**inputs), other(**inputs), rtol=1e-9, atol=1e-9)
