"""Inputs of models, as far as checks that a function is preserved have to know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Names under which configs of transformers say how many positions a sequence of tokens may have.
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len")


@dataclass(frozen=True)
class Input:
    """One input of a model.

    Attributes:
        name: the forward's keyword.
        shape: without the batch.
        vocabulary: for token ids, how many there are.
        last: for token ids, the one that every row ends with and that is nowhere else, or None.
        placed: for token ids, the one that stands for an image's features, and how often it stands behind the first
            token of every row, and nowhere else; or None.
        numbers: whole numbers that are the same for every example, in the order of `shape`: sizes, masks, kinds of
            tokens; or None.
        is_mask: whether it is a mask, of which each row's first entry is always true: of zeros and ones where it has a
            vocabulary of two, of truth values where it has none.
        is_stacked: whether the examples stand one behind the other in the first dimension, without one of their own.
    """

    name: str
    shape: tuple[int, ...]
    vocabulary: int | None = None
    last: int | None = None
    placed: tuple[int, int] | None = None
    numbers: tuple[int, ...] | None = None
    is_stacked: bool = False
    is_mask: bool = False

    def random(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
        """A random batch: normal numbers, or token ids; the numbers that are always the same, where it has those."""
        if self.numbers is not None:
            return torch.tensor(self.numbers).reshape(1, *self.shape).repeat(batch, *(1 for _ in self.shape))
        if self.is_mask:
            shown = torch.randint(2, (batch, *self.shape), generator=generator)
            shown[..., :1] = 1
            return shown.bool() if self.vocabulary is None else shown
        if self.vocabulary is None:
            drawn = torch.randn(batch, *self.shape, generator=generator, dtype=torch.float64).to(dtype)
            return drawn.flatten(0, 1) if self.is_stacked else drawn
        ids = torch.randint(self.vocabulary, (batch, *self.shape), generator=generator)
        if self.last is not None:
            ids[ids == self.last] = (self.last + 1) % self.vocabulary
            ids[..., -1] = self.last
        if self.placed is not None:
            token, count = self.placed
            ids[ids == token] = (token + 1) % self.vocabulary
            ids[..., 1 : 1 + count] = token
        return ids

    def without(self, token: object, drawn: Tensor) -> Tensor:
        """A random batch of a text's tokens with another in place of one that has no place of its own.

        Args:
            token: to be left out; whatever is no token of the vocabulary leaves the batch as it is.
            drawn: by `random`; of other inputs than texts it is given back.
        """
        own = {self.last, None if self.placed is None else self.placed[0]}
        if not self.name.endswith("input_ids") or self.vocabulary is None or token in own:
            return drawn
        other = next((one for one in range(self.vocabulary) if one not in own and one != token), None)
        return drawn if other is None or not isinstance(token, int) else torch.where(drawn == token, other, drawn)


def positions_of(config: Any) -> int | None:
    """The most tokens that a model's positions reach, a few of which some models keep for padding.

    Args:
        config: of transformers, or anything else.

    Returns:
        The number of its text; None where it names none, as where positions are relative.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    known = (getattr(text, name, None) for name in _POSITIONS)
    return next((found for found in known if isinstance(found, int) and found > 0), None)
