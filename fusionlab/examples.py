"""Examples of a batch: how many there are, and some of them.

An input has one row for each example. Only in a batch of one example it may have another number, such as one for each
patch of its image, or one for each of its images: all of them are that example's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.forward import TOKENS, refusing_misfit
from fusionlab.types import Batch


def example_count(batch: Batch) -> int:
    """The number of examples in a batch: of its texts, or of its first input."""
    first = next(value for value in batch.values() if isinstance(value, Tensor))
    return len(batch.get(TOKENS, first))


def take_examples(batch: Batch, index: Tensor) -> dict[str, Tensor]:
    """Some examples of a batch, also more than once; what has not one row for each example is left as it is."""
    count = example_count(batch)
    return {
        name: value[index.to(value.device)] if isinstance(value, Tensor) and value.shape[:1] == (count,) else value
        for name, value in batch.items()
    }


def doubled(batch: Batch) -> dict[str, Tensor]:
    """A batch with all of its examples twice, and with all rows of every input."""
    return {name: torch.cat([value, value]) if isinstance(value, Tensor) else value for name, value in batch.items()}


def take_joined(batch: Batch, index: Tensor) -> dict[str, Tensor]:
    """Some examples of batches that were joined, each with equally many rows of an input, one behind the other."""
    count = example_count(batch)
    return {name: value.unflatten(0, (count, -1))[index].flatten(0, 1) for name, value in batch.items()}


def refuse_unlike_rows(batch: Batch) -> None:
    """Refuse several examples where an input has another number of rows: nothing tells whose they are.

    Raises:
        InputError: names the input.
    """
    count = example_count(batch)
    name = unlike(batch)
    if name is not None and count > 1:
        raise InputError(
            f"the data has {len(batch[name])} rows of {name} for {count} examples, so that nothing tells which are "
            f"whose; expected batches of one example each (batch_size 1)"
        )


@contextmanager
def refusing_batch(batch: Batch) -> Iterator[None]:
    """Tell what a model raises on a batch as data that does not fit it, or as rows of nobody knows which example.

    Raises:
        InputError: the block failed.
    """
    with refusing_misfit():
        try:
            yield
        except InputError:
            raise
        except Exception:
            refuse_unlike_rows(batch)
            raise


def unlike(batch: Batch) -> str | None:
    """The first input that has another number of rows than there are examples; None where each has one for each."""
    count = example_count(batch)
    rows = {name: len(value) for name, value in batch.items() if isinstance(value, Tensor) and value.ndim}
    return next((name for name, found in rows.items() if found != count), None)
