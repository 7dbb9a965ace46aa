"""Order statistics by selection: the k-th largest of numbers that are never held together, nor sorted."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients, Survey

# Bits of a number that one look at all of them settles.
_BITS = 16
_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}

Rows = Callable[[Ingredients], Sequence[Tensor]]
Ranks = Callable[[int, int], Sequence[int]]


def of_ranks(survey: Survey, rows: Rows, ranks: Ranks) -> list[list[float]]:
    """The numbers of some ranks in each of several rows.

    The bits of numbers, read as whole numbers, are in the numbers' order once those of numbers below 0 are turned. So
    counting by the first 16 bits says what these bits of the number are that is looked for, and counting those that
    begin so by the next 16 bits says the next: two looks at all numbers in float32, four in float64.

    Args:
        survey: of the models that the numbers come from.
        rows: for a part of the models, tensors of shape ``(rows, numbers)``.
        ranks: for a row's place and how many numbers it has, the ranks that are looked for: 1 of its largest number, up
            to that count; equally many for each row.

    Returns:
        For each row one number for each rank.
    """
    integer = _INTEGERS[survey.dtype]
    width = 8 * survey.dtype.itemsize
    # By row and rank, counted from the least number of bits that there is.
    found: list[list[int]] = []
    left: list[list[int]] = []
    for shift in range(width - _BITS, -1, -_BITS):

        def counted(part: Ingredients, known: Sequence[Sequence[int]] = tuple(found), shift: int = shift) -> Tensor:
            counts = torch.zeros((), dtype=torch.int64)
            for tensor in rows(part):
                one = _counts(_ordered(tensor.to(survey.dtype).view(integer)), known, shift)
                counts = one.add_(counts)
            return counts

        counts = survey.total(counted)
        if not left:
            left = [list(ranks(place, int(row.sum()))) for place, row in enumerate(counts)]
            found = [[0] * len(own) for own in left]
        for row, own, known in zip(counts, left, found, strict=True):
            for place, rank in enumerate(own):
                # All ranks share the counts of the first look.
                values = row[min(place, len(row) - 1)]
                # As many as lie in each bin or above it.
                above = values.flip(0).cumsum(0).flip(0)
                chosen = int((above >= rank).sum()) - 1
                own[place] -= int(above[chosen] - values[chosen])
                known[place] = known[place] << _BITS | chosen
    turned = [[_turned(bits - 2 ** (width - 1), width) for bits in row] for row in found]
    return [torch.tensor(row, dtype=integer).view(survey.dtype).tolist() for row in turned]


def _ordered(bits: Tensor) -> Tensor:
    """The bits of numbers as whole numbers in the numbers' order."""
    limits = torch.iinfo(bits.dtype)
    return bits ^ ((bits >> (limits.bits - 1)) & limits.max)


def _turned(ordered: int, width: int) -> int:
    """The bits of a number by its place in that order, which are so many."""
    return ordered if ordered >= 0 else ordered ^ (2 ** (width - 1) - 1)


def _counts(ordered: Tensor, found: Sequence[Sequence[int]], shift: int) -> Tensor:
    """The count of each value of the next bits among numbers that begin as was found, ``(rows, ranks, values)``.

    At first nothing was found, and it is that of all numbers, ``(rows, 1, values)``.
    """
    if not found:
        return torch.stack(
            [torch.bincount((row >> shift) + 2 ** (_BITS - 1), minlength=2**_BITS) for row in ordered]
        ).unsqueeze(1)
    least = 2 ** (torch.iinfo(ordered.dtype).bits - shift - _BITS - 1)
    counts = torch.zeros(len(found), len(found[0]), 2**_BITS, dtype=torch.int64)
    for row, known, own in zip(ordered, found, counts, strict=True):
        begins, chosen = row >> (shift + _BITS), (row >> shift) & (2**_BITS - 1)
        for one, of_one in zip(known, own, strict=True):
            of_one.copy_(torch.bincount(chosen[begins == one - least], minlength=2**_BITS))
    return counts
