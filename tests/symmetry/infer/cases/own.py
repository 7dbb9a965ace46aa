"""Modules of one's own: parameters and layers used in ways that no library's classes show."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.symmetry.infer.cases.sample import Sample, floats, images, own, tokens


class Convolutional(nn.Module):
    """Convolutions with batch norm, one of them by depth, one in groups, and a linear head over all places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(12)
        self.deep = nn.Conv2d(12, 12, 3, groups=12)
        self.grouped = nn.Conv2d(12, 20, 3, stride=2, groups=4)
        self.second_norm = nn.BatchNorm2d(20)
        self.head = nn.Linear(20 * 9, 5)

    def forward(self, image: Tensor) -> Tensor:
        found = functional.relu(self.first_norm(self.first(image)))
        found = functional.gelu(self.second_norm(self.grouped(self.deep(found))))
        return self.head(found.flatten(1))


class Twice(nn.Module):
    """A layer that is called twice, and a table of tokens that is read again as the head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(19, 8)
        self.layer = nn.Sequential(nn.Linear(8, 11), nn.Tanh(), nn.Linear(11, 8))
        self.again = self.layer
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: Tensor) -> Tensor:
        stream = self.table(ids)
        stream = stream + self.layer(stream)
        stream = stream + self.again(self.norm(stream))
        return self.norm(stream) @ self.table.weight.T


class Constants(nn.Module):
    """Buffers between parameters: a mask of hidden units, a scale of them that is saved, fixed random directions."""

    mask: Tensor
    scale: Tensor
    directions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 5)
        draw = torch.Generator().manual_seed(5)
        self.register_buffer("mask", torch.tensor([1.0, 1, 0, 1, 1, 0, 1, 1, 1]), persistent=False)
        self.register_buffer("scale", torch.rand(9, generator=draw) + 0.5)
        self.register_buffer("directions", torch.randn(5, 7, generator=draw), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)) * self.mask * self.scale) @ self.directions


class Named(nn.Module):
    """Parameters without modules: read by name, in a list and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Parameter(torch.randn(6, 8))
        self.shift = nn.Parameter(torch.zeros(8))
        self.steps = nn.ParameterList([torch.randn(8, 8) for _ in range(3)])
        self.heads = nn.ParameterDict({"mean": torch.randn(8, 5), "spread": torch.randn(8, 4)})

    def forward(self, x: Tensor) -> Tensor:
        named = dict(self.named_parameters())
        stream = x @ named["enter"] + named["shift"]
        for step in self.steps:
            stream = torch.relu(stream @ step)
        return torch.cat([stream @ self.heads["mean"], torch.sigmoid(stream @ self.heads["spread"])], -1)


class Branches(nn.Module):
    """One of two layers, as the input says: a trace sees the one that is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 9)
        self.up, self.down = nn.Linear(9, 9), nn.Linear(9, 9)
        self.leave = nn.Linear(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        stream = torch.tanh(self.enter(x))
        stream = self.up(stream) if bool(x.sum() > 0) else self.down(stream)
        return self.leave(torch.tanh(stream))


class Pairs(nn.Module):
    """A bilinear form of two streams."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Linear(4, 7)
        self.meet, self.head = nn.Bilinear(8, 7, 9), nn.Linear(9, 5)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.relu(self.meet(self.left(left), self.right(right))))


class Unet(nn.Module):
    """Down and up again by a transposed convolution, what was before beside what comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 9, 3, stride=3)
        self.up, self.leave = nn.ConvTranspose2d(9, 7, 3, stride=3), nn.Conv2d(13, 5, 1)
        self.norm = nn.GroupNorm(3, 9)

    def forward(self, image: Tensor) -> Tensor:
        before = functional.relu(self.enter(image))
        below = functional.relu(self.norm(self.down(before)))
        return self.leave(torch.cat([before, self.up(below)], 1))


class Mixer(nn.Module):
    """Layers over places and layers over channels in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 10, 4, stride=4)
        self.norms = nn.ModuleList([nn.LayerNorm(10) for _ in range(3)])
        self.places = nn.Sequential(nn.Linear(9, 7), nn.GELU(), nn.Linear(7, 9))
        self.channels = nn.Sequential(nn.Linear(10, 13), nn.GELU(), nn.Linear(13, 10))
        self.head = nn.Linear(10, 5)

    def forward(self, image: Tensor) -> Tensor:
        stream = self.cut(image).flatten(2).transpose(1, 2)
        stream = stream + self.places(self.norms[0](stream).transpose(1, 2)).transpose(1, 2)
        stream = stream + self.channels(self.norms[1](stream))
        return self.head(self.norms[2](stream).mean(1))


class LowRank(nn.Module):
    """A frozen layer with a product of two thin ones beside it, and a weight made of a direction and a length."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 10)
        self.thin, self.wide = nn.Parameter(torch.randn(3, 8)), nn.Parameter(torch.randn(10, 3))
        self.direction, self.length = nn.Parameter(torch.randn(5, 10)), nn.Parameter(torch.rand(5, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        stream = torch.relu(functional.linear(x, self.base.weight + 0.5 * self.wide @ self.thin, self.base.bias))
        weight = self.length * self.direction / self.direction.norm(dim=1, keepdim=True)
        return functional.linear(stream, weight)


class Pieces(nn.Module):
    """A mixture of experts in a loop over parameters, with all experts weighed, and pieces of maxima."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)) for _ in range(3)])
        self.pieces = nn.Linear(6, 5 * 4)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        mixed = sum(weights[..., i, None] * expert(x) for i, expert in enumerate(self.experts))
        return self.pieces(x + mixed).unflatten(-1, (5, 4)).amax(-1)


class Distances(nn.Module):
    """Distances to prototypes after a layer: rotations, and no scales."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.prototypes = nn.Linear(6, 8), nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return -(self.enter(x).unsqueeze(-2) - self.prototypes).square().sum(-1)


class Linears(nn.Module):
    """Layers with nothing between them, and cosines of what comes out with directions for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 7, bias=False), nn.Linear(7, 8))
        self.classes = nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(self.layers(x), dim=-1) @ functional.normalize(self.classes, dim=-1).T


def both(draw: torch.Generator) -> dict[str, Tensor]:
    return floats("left", 6)(draw) | floats("right", 4)(draw)


SAMPLES: tuple[Sample, ...] = (
    own("convolutional", Convolutional, images(9, name="image")),
    own("a layer called twice", Twice, tokens("ids", high=19)),
    own("buffers", Constants, floats("x", 6, batch=3)),
    own("parameters read by name", Named, floats("x", 6, batch=3)),
    own("branches on data", Branches, floats("x", 6, batch=3)),
    own("bilinear", Pairs, both),
    own("transposed convolution", Unet, images(9, name="image")),
    own("mixer", Mixer, images(12, name="image")),
    own("products of parameters", LowRank, floats("x", 8, batch=3)),
    own("experts in a loop", Pieces, floats("x", 7, 6)),
    own("distances", Distances, floats("x", 7, 6)),
    own("linear layers in a row", Linears, floats("x", 7, 6)),
)
