"""Synthetic images, brightness from 0 to 1: independent pixels, smooth noise, and drawings of random shapes.

Drawings are a prior for images in general: edges, strokes, areas of one colour or texture, occlusion. Baradad et al.,
"Learning to see by looking at noise" (2021), found that such structure, not realism, is what makes synthetic images
useful.
"""

import math

import torch
from torch import Tensor

MIXTURE = "mixture"
# Shares of a mixture of images.
SHARES = {"drawings": 0.6, "noise": 0.4}
# So many are drawn at once: a shape's distances to all pixels of all images would not fit into memory.
PIECE = 256
# Shapes are laid over each other, at most so many in a drawing.
MOST_SHAPES = 6
# Points on a curve from which its distance to a pixel is measured, and sides of a polygon.
CURVE_POINTS, SIDES = 12, 5


def pixels(count: int, channels: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Independent, uniformly distributed pixels, shape ``(count, channels, height, width)``."""
    return torch.rand(count, channels, height, width, generator=generator)


def noise(count: int, channels: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Smooth noise whose amplitude falls as ``1 / f^a`` with ``a`` from 0.5 to 2 for each image.

    Natural images have ``a`` near 1 (Field, "Relations between the statistics of natural images", 1987). Channels are
    partly correlated, brightness and contrast differ between images.

    Returns:
        Shape ``(count, channels, height, width)``, from 0 to 1.
    """
    rows = torch.fft.fftfreq(height).reshape(-1, 1) * height
    columns = torch.fft.rfftfreq(width).reshape(1, -1) * width
    frequency = (rows**2 + columns**2).sqrt().clamp_min(1)
    slope = 0.5 + 1.5 * torch.rand(count, 1, 1, 1, generator=generator)
    white = torch.randn(count, channels, height, width, generator=generator)
    field = torch.fft.irfft2(torch.fft.rfft2(white) * frequency**-slope, s=(height, width))
    shared = field.mean(1, keepdim=True)
    field = shared + torch.rand(count, 1, 1, 1, generator=generator) * (field - shared)
    field = field / field.std((1, 2, 3), keepdim=True).clamp_min(1e-6)
    contrast = 0.05 + 0.35 * torch.rand(count, 1, 1, 1, generator=generator)
    middle = 0.15 + 0.7 * torch.rand(count, 1, 1, 1, generator=generator)
    return (middle + contrast * field).clamp(0, 1)


def drawings(count: int, channels: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Random drawings: curved strokes, ellipses and polygons laid over each other on a background.

    With one channel most are light strokes on black paper, as writing is; with more channels background and shapes have
    random colours, gradients and textures.

    Returns:
        Shape ``(count, channels, height, width)``, from 0 to 1.
    """
    rows, columns = (torch.arange(size).add(0.5).div(size) for size in (height, width))
    grid = torch.stack((columns.expand(height, width), rows[:, None].expand(height, width)))
    if channels == 1:
        return _writing(count, grid, generator)
    image = _paint(count, channels, grid, generator)
    shapes = torch.randint(1, MOST_SHAPES + 1, (count,), generator=generator)
    for layer in range(MOST_SHAPES):
        kind = torch.randint(3, (count, 1, 1), generator=generator)
        distance = _choose(kind, _stroke(count, grid, generator), _ellipse(count, grid, generator),
                           _polygon(count, grid, generator))  # fmt: skip
        cover = _cover(distance, grid) * (layer < shapes).reshape(-1, 1, 1)
        image = torch.lerp(image, _paint(count, channels, grid, generator), cover.unsqueeze(1))
    return image.clamp(0, 1)


def _writing(count: int, grid: Tensor, generator: torch.Generator) -> Tensor:
    """Strokes of light ink on black paper, at most four."""
    ink = torch.zeros(count, *grid.shape[1:])
    strokes = torch.randint(1, 5, (count,), generator=generator)
    for layer in range(4):
        cover = _cover(_stroke(count, grid, generator), grid) * (layer < strokes).reshape(-1, 1, 1)
        ink = torch.maximum(ink, cover * (0.7 + 0.3 * torch.rand(count, 1, 1, generator=generator)))
    return ink.unsqueeze(1)


def _stroke(count: int, grid: Tensor, generator: torch.Generator) -> Tensor:
    """Signed distance to thick quadratic Bezier curves; like all distances of shape ``(count, height, width)``."""
    start, bend, end = torch.rand(3, count, 2, generator=generator) * 1.1 - 0.05
    nearest = torch.full((count, *grid.shape[1:]), math.inf)
    for step in range(CURVE_POINTS):
        t = step / (CURVE_POINTS - 1)
        point = (1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * end
        nearest = torch.minimum(nearest, (grid - point.reshape(count, 2, 1, 1)).square().sum(1))
    thickness = 0.02 + 0.08 * torch.rand(count, 1, 1, generator=generator)
    return nearest.sqrt() - thickness


def _ellipse(count: int, grid: Tensor, generator: torch.Generator) -> Tensor:
    """Signed distance, near its edge, to a turned ellipse."""
    centred = grid - torch.rand(count, 2, 1, 1, generator=generator)
    angle = math.pi * torch.rand(count, 1, 1, generator=generator)
    radii = 0.05 + 0.45 * torch.rand(2, count, 1, 1, generator=generator)
    along = (centred[:, 0] * angle.cos() + centred[:, 1] * angle.sin()) / radii[0]
    across = (centred[:, 1] * angle.cos() - centred[:, 0] * angle.sin()) / radii[1]
    return ((along**2 + across**2).sqrt() - 1) * radii.amin(0)


def _polygon(count: int, grid: Tensor, generator: torch.Generator) -> Tensor:
    """Signed distance to a convex polygon: the inside of some half-planes around a centre."""
    centred = grid - torch.rand(count, 2, 1, 1, generator=generator)
    inside = torch.full((count, *grid.shape[1:]), -math.inf)
    turn = torch.rand(count, 1, 1, generator=generator)
    for side in range(SIDES):
        angle = 2 * math.pi * (turn + (side + 0.6 * torch.rand(count, 1, 1, generator=generator)) / SIDES)
        reach = 0.05 + 0.4 * torch.rand(count, 1, 1, generator=generator)
        inside = torch.maximum(inside, centred[:, 0] * angle.cos() + centred[:, 1] * angle.sin() - reach)
    return inside


def _paint(count: int, channels: int, grid: Tensor, generator: torch.Generator) -> Tensor:
    """A colour for each image that changes along a random direction, with some texture over it."""
    colours = torch.rand(2, count, channels, 1, 1, generator=generator)
    colours[1] = torch.lerp(colours[0], colours[1], torch.rand(count, 1, 1, 1, generator=generator) ** 2)
    angle = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    position = 0.5 + (grid[0] - 0.5) * angle.cos() + (grid[1] - 0.5) * angle.sin()
    colour = torch.lerp(colours[0], colours[1], position.unsqueeze(1))
    strength = 0.8 * torch.rand(count, 1, 1, 1, generator=generator) ** 2
    _, height, width = grid.shape
    return colour + strength * (noise(count, channels, height, width, generator) - 0.5)


def _cover(distance: Tensor, grid: Tensor) -> Tensor:
    """The share of each pixel that lies inside a shape: 1 inside, 0 outside, a soft edge of one pixel."""
    return torch.sigmoid(-4 * distance * min(grid.shape[1:]))


def _choose(kind: Tensor, *options: Tensor) -> Tensor:
    chosen = options[0]
    for index, option in enumerate(options[1:], start=1):
        chosen = torch.where(kind == index, option, chosen)
    return chosen


IMAGES = {"pixels": pixels, "noise": noise, "drawings": drawings}


def drawn_images(shape: tuple[int, ...], count: int, kind: str, generator: torch.Generator) -> Tensor:
    """Images from 0 to 1, of shape ``(count, *shape)``; spectrograms count as images of one channel.

    Args:
        shape: of one image, ``([channels,] height, width)``, behind any dimensions of size 1.
        count: how many.
        kind: a name of `IMAGES`, or ``mixture``, of drawings and noise.
        generator: of what is random.
    """
    channels, height, width = (1, *shape)[-3:]
    shares = SHARES if kind == MIXTURE else {kind: 1.0}
    parts, left = [], count
    for position, (name, share) in enumerate(shares.items(), start=1):
        number = left if position == len(shares) else round(share * count)
        left -= number
        pieces = [PIECE] * (number // PIECE) + ([number % PIECE] if number % PIECE else [])
        parts += [IMAGES[name](piece, channels, height, width, generator) for piece in pieces]
    return torch.cat(parts).reshape(count, *shape)
