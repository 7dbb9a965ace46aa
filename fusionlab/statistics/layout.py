"""The examples and tokens that the rows of a linear map's input belong to, so that padding is never counted.

A layout is found by experiment, not guessed from shapes that may agree by accident: the model runs on one example, on
that example twice, and on the example without one of its tokens, and whichever dimension follows is the batch or the
tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.examples import example_count
from fusionlab.forward import DECODER_MASK, DECODER_TOKENS, LABELS, TOKENS, class_texts, takes, written_tokens
from fusionlab.types import Batch

MASKS = {"encoder": "attention_mask", "decoder": DECODER_MASK}


@dataclass(frozen=True)
class Layout:
    """The dimensions of rows of shape ``(*leading, features)``.

    Attributes:
        batch: the dimension that examples follow each other along, each with one entry or several.
        tokens: the dimension that tokens follow each other along (the same as `batch` where both are flattened into
            one), or None where rows are no tokens.
        mask: which of `token_masks` says the tokens that count, or None.
    """

    batch: int
    tokens: int | None = None
    mask: str | None = None

    def valid(self, masks: Mapping[str, Tensor], leading: torch.Size) -> Tensor | None:
        """A mask of the rows that count, flattened, shape ``(rows,)``; None for all.

        All count too where they are not one for each token: pooled ones, or entities beside words.
        """
        if self.mask is None or self.tokens is None:
            return None
        # A batch without padding need not have one.
        mask = masks.get(self.mask)
        if mask is None:
            return None
        if self.batch != self.tokens and mask.shape[1] != leading[self.tokens]:
            return None
        if self.batch != self.tokens:
            shaped = mask if self.batch < self.tokens else mask.T
            sizes = [size if dim in (self.batch, self.tokens) else 1 for dim, size in enumerate(leading)]
            mask = shaped.reshape(sizes).expand(leading)
        return mask.reshape(-1)

    def examples(self, leading: torch.Size, count: int) -> Tensor:
        """The index of the example, of `count`, that each row belongs to, flattened, shape ``(rows,)``.

        Raises:
            InputError: another number of rows for one example than for another.
        """
        length = leading[self.batch]
        if length % count:
            raise InputError(
                f"{length} rows were read of {count} examples, so that nothing tells which is whose; expected batches "
                f"whose first examples show which modules choose what they read"
            )
        sizes = [length if dim == self.batch else 1 for dim in range(len(leading))]
        return (torch.arange(length) // (length // count)).reshape(sizes).expand(leading).reshape(-1)


def token_masks(batch: Batch) -> dict[str, Tensor]:
    """The tokens that count: not padding, and for a decoder without a mask not those whose label is ignored.

    Returns:
        ``encoder`` and ``decoder``, where the batch has them: booleans of shape ``(batch, tokens)``. Models without an
        encoder of their own go by ``encoder``.

    Raises:
        InputError: a mask of another shape.
    """
    masks: dict[str, Tensor] = {}
    if class_texts(batch) is not None:
        # The mask is that of the texts of classes, which are no examples.
        return masks
    for side, name in MASKS.items():
        if (mask := batch.get(name)) is None:
            continue
        if mask.ndim != 2:
            raise InputError(f"{name} has {mask.ndim} dimensions; expected the shape (batch, tokens)")
        masks[side] = mask.bool()
    if (written := written_tokens(batch)) is not None:
        masks["decoder"] = written
    return masks


def possible_masks(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Masks that other batches like this one may have, as far as the model takes them: of texts, where all counts.

    Args:
        model: that the batches are for.
        batch: whose texts may have no padding, and so no mask.
    """
    if class_texts(batch) is not None:
        return {}
    sides = {"encoder": TOKENS, "decoder": DECODER_TOKENS}
    texts = {side: batch[name] for side, name in sides.items() if name in batch and takes(model, MASKS[side])}
    return {side: torch.ones_like(text, dtype=torch.bool) for side, text in texts.items() if text.ndim == 2}


def shorter(batch: Batch, side: str, mask: Tensor) -> Iterator[dict[str, Tensor]]:
    """The batch with one token less on one side: first without the second, as models look for a first or a last one.

    Then without others, from the last but one on: a model may need the second, such as one that stands for an image.
    Of tokens that are the same only one is left out. Of two tokens the first is, and a single one is there twice.
    """
    length = mask.shape[1]
    if length < 3:
        yield _with_tokens(batch, side, length, [length - 1] * (3 - length))
        return
    tokens = batch.get(DECODER_TOKENS if side == "decoder" else TOKENS)
    tried: set[int] = set()
    for place in (1, *range(length - 2, 1, -1)):
        number = place if tokens is None or tokens.ndim != 2 else int(tokens[0, place])
        if number not in tried:
            tried.add(number)
            yield _with_tokens(batch, side, length, [other for other in range(length) if other != place])


def _with_tokens(batch: Batch, side: str, length: int, places: Sequence[int]) -> dict[str, Tensor]:
    """The batch with the tokens at some places of one side."""
    kept = torch.tensor(places)
    return {
        name: value[:, kept.to(value.device)] if has_tokens(name, value, side, length) else value
        for name, value in batch.items()
    }


def has_tokens(name: str, value: Tensor, side: str, length: int) -> bool:
    """True where dimension 1 of an input runs over the tokens of one side; pixels have four dimensions."""
    if not isinstance(value, Tensor) or value.ndim not in (2, 3) or value.shape[1] != length:
        return False
    return name.startswith("decoder_") == (side == "decoder")


def fingerprints(batch: Batch) -> list[int]:
    """A number for each example that tells its inputs apart from all others', padding and labels left aside."""
    masks = {side: mask.cpu() for side, mask in token_masks(batch).items()}
    digests = [hashlib.blake2b(digest_size=16) for _ in range(example_count(batch))]
    for name in sorted(batch):
        value = batch[name]
        if not isinstance(value, Tensor) or name in (LABELS, *MASKS.values()):
            continue
        if len(value) != len(digests):
            if len(digests) > 1:
                continue
            # All rows are those of the one example.
            value = value[None]
        side = next((s for s, mask in masks.items() if has_tokens(name, value, s, mask.shape[1])), None)
        # A policy of double precision must not change what is drawn.
        plain = value.detach().cpu().double() if value.is_floating_point() else value.detach().cpu()
        for index, digest in enumerate(digests):
            part = plain[index] if side is None else plain[index][masks[side][index]]
            digest.update(f"{name}:{tuple(part.shape)};".encode())
            digest.update(part.contiguous().numpy().tobytes())
    return [int.from_bytes(digest.digest(), "big") for digest in digests]


def find_layout(once: torch.Size, twice: torch.Size, shortened: Mapping[str, torch.Size]) -> Layout | None:
    """The layout of what a map read in one call.

    Args:
        once: leading dimensions for one example.
        twice: for that example twice.
        shortened: by side, with one token less.

    Returns:
        None where it is no data: as many rows for two examples as for one.
    """
    followed = [dim for dim, (a, b) in enumerate(zip(once, twice, strict=True)) if a != b]
    if not followed:
        return None
    for side, other in shortened.items():
        changed = [dim for dim, (a, b) in enumerate(zip(once, other, strict=True)) if a != b]
        if changed:
            return Layout(followed[0], changed[0], side)
    return Layout(followed[0])
