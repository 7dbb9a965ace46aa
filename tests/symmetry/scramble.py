"""A twin of a model that was deliberately moved as far away as its symmetry allows."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.folding import along
from tests.symmetry.models import generator


def scrambled(state: Mapping[str, Tensor], description: Blueprint, seed: int) -> dict[str, Tensor]:
    """The same function in a random basis of every space.

    Heads are multiplied by random invertible matrices and permuted like units, the stream is rotated, gains move.

    Args:
        state: parameters by name, of `description`; not modified.
        description: of the model as it stands, not folded.
        seed: of all that is random.
    """
    draw = generator(seed)
    out = Alignment.random(description.after_folding or description, draw).apply(state)
    for norm in description.norms:
        # What folding did, undone by halves: a gain here, its inverse in what reads the norm.
        gain = torch.rand(out[norm.weight].shape, generator=draw, dtype=torch.float64) + 0.5
        for reader in norm.readers:
            weight = out[reader.weight].clone()
            reading = weight.movedim(reader.dim, -1)[slice(*reader.rows) if reader.rows else slice(None)]
            reading /= gain.repeat(reading.shape[-1] // gain.numel())
            out[reader.weight] = weight
        out[norm.weight] = out[norm.weight] * gain
        if norm.bias is not None:
            out[norm.bias] = out[norm.bias] * gain
    for scale in description.layer_scales:
        factor = torch.rand(out[scale.scale].shape, generator=draw, dtype=torch.float64) + 0.5
        out[scale.scale] = out[scale.scale] * factor
        for name in (scale.weight, description.biases.get(scale.weight)):
            if name is not None:
                out[name] = out[name] / along(factor, 0, out[name].ndim)
    return out
