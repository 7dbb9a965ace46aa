"""Quantiles by selection: the k-th largest of numbers that are never held together, nor sorted."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients, Survey

# Bits of a number that one look at all of them settles.
_BITS = 16
_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}

Rows = Callable[[Ingredients], Sequence[Tensor]]


def smallest_of_largest(survey: Survey, rows: Rows, keep: Callable[[int], int]) -> list[float]:
    """The smallest of the so many largest numbers in each of several rows.

    The bits of numbers from 0 up, read as whole numbers, are in the numbers' order. So counting by the first 16 bits
    says what these bits of the number are that is looked for, and counting those that begin so by the next 16 bits says
    the next: two looks at all numbers in float32, four in float64.

    Args:
        survey: of the models that the numbers come from.
        rows: for a part of the models, tensors of shape ``(rows, numbers)`` that hold numbers from 0 up.
        keep: for how many numbers a row has, how many are the largest; at least 1.

    Returns:
        One number for each row.
    """
    integer = _INTEGERS[survey.dtype]
    width = 8 * survey.dtype.itemsize
    found: list[int] = []
    left: list[int] = []
    for shift in range(width - _BITS, -1, -_BITS):

        def counted(part: Ingredients, known: Sequence[int] = tuple(found), shift: int = shift) -> Tensor:
            bits = [tensor.to(survey.dtype).view(integer) for tensor in rows(part)]
            return sum((_counts(tensor, known, shift) for tensor in bits), start=torch.zeros((), dtype=torch.int64))

        counts = survey.total(counted)
        if not left:
            left = [keep(int(row.sum())) for row in counts]
            found = [0] * len(left)
        for index, row in enumerate(counts):
            # As many as lie in each bin or above it.
            above = row.flip(0).cumsum(0).flip(0)
            place = int((above >= left[index]).sum()) - 1
            left[index] -= int(above[place] - row[place])
            found[index] = found[index] << _BITS | place
    return torch.tensor(found, dtype=integer).view(survey.dtype).tolist()


def _counts(bits: Tensor, found: Sequence[int], shift: int) -> Tensor:
    """The count of each value of the next bits among numbers that begin as was found, ``(rows, values)``."""
    counts = []
    for index, row in enumerate(bits):
        chosen = row >> shift
        if found:
            chosen = chosen[chosen >> _BITS == found[index]] & (2**_BITS - 1)
        counts.append(torch.bincount(chosen, minlength=2**_BITS))
    return torch.stack(counts)
