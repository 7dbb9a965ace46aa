"""Supplements of few inputs of a descent: mixtures of them, and synthetic ones like them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.errors import first_line
from fusionlab.probes import inputs_like
from fusionlab.probes.beside import IDS

_LOGGER = logging.getLogger("fusionlab")
# So many synthetic inputs are added to very few, fewer the more were given, and none to `FEW`.
SYNTHETIC, FEW = 4000, 1000

# Makes so many inputs like the given ones; None where nothing is like them.
Like = Callable[[Mapping[str, Tensor], int], Mapping[str, Tensor] | None]


@dataclass(frozen=True)
class Supplement:
    """The supplement of few inputs.

    Attributes:
        mixtures: fewer inputs than this are filled up with mixtures of two of them, where they can be mixed.
        synthetic: so many synthetic inputs are added to very few; see `synthetic_count`.
        like: makes those; None for none.
        seed: of the mixtures.
    """

    mixtures: int = 0
    synthetic: int = 0
    like: Like | None = None
    seed: int = 0

    def synthetic_count(self, given: int) -> int:
        """The number of synthetic inputs that are added to some given ones, falling to none where 1,000 were given."""
        return round(self.synthetic * max(0.0, 1 - given / FEW))


def like_given(models: Sequence[nn.Module], seed: int) -> Like:
    """A function that makes synthetic inputs like given ones (`fusionlab.probes.inputs_like`).

    Special tokens are those of the tokenizer in the folder that the first model was loaded from. Where a model's class
    fails at writing, a warning says so and nothing is made: what it was given is enough to go on.

    Args:
        models: that the inputs are for.
        seed: same seed, same inputs.
    """

    def make(given: Mapping[str, Tensor], count: int) -> Mapping[str, Tensor] | None:
        generator = torch.Generator().manual_seed(seed)
        if IDS not in given:
            return inputs_like(given, models, count, generator)
        # Reading data sets takes a library that models of images need not wait for.
        from fusionlab.data.tokenizers import tokenizer_beside  # noqa: PLC0415

        try:
            return inputs_like(given, models, count, generator, tokenizer_beside(models[0]))
        # A model's own class writes, and what it raises may be anything.
        except Exception as error:
            reason = first_line(error.__cause__ or error)
            _LOGGER.warning("Nothing is added to few inputs: no texts could be written (%s).", reason)
            return None

    return make
