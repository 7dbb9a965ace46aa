"""Limits on what a description may ask for: no more than the weights beside it can fill.

A config of a few bytes can name a model of any size. Weights say how large it really is, so a model is first built
without memory, and refused as soon as it has far more parameters than there are numbers to fill them with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from fusionlab.errors import InputError

# A new head, tied parameters and tables that files leave out come on top of what is stored.
_SLACK_NUMBERS, _SLACK_TENSORS = 2**24, 1000
# What transformers makes lists of before there is any module to count: by the end of a field's name, the most of it.
_LISTED = {r"layers?|depth": 10_000, r"num_labels|num_classes": 100_000}


@dataclass(frozen=True)
class Stored:
    """The numbers and names of all weights of a checkpoint, counted."""

    numbers: int
    """Of all tensors together."""
    tensors: int

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Stored:
        """The count for some tensors; one that repeats its storage counts as what is stored."""
        sizes = [min(t.numel(), t.untyped_storage().nbytes() // t.element_size()) for t in tensors]
        return cls(sum(sizes), len(sizes))


def memory() -> int:
    """Bytes of memory that this machine has; a tebibyte where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**40


@contextmanager
def within_memory(source: str | Path) -> Iterator[None]:
    """Build a model without memory (on the meta device) that this machine's memory can hold in float32.

    Args:
        source: of the description, for messages.

    Raises:
        InputError: it cannot; as soon as one parameter too many is made.
    """
    most = memory()

    def refuse(numbers: int, tensors: int) -> None:
        if 4 * numbers > most or tensors > 1_000_000:
            raise InputError(
                f"{source}: it needs at least {4 * numbers / 2**20:,.0f} MiB in {tensors:,} parameters, but this "
                f"machine has {most / 2**20:,.0f} MiB of memory; expected a smaller model"
            )

    with _counted(refuse):
        yield


@contextmanager
def no_larger(stored: Stored, source: str | Path) -> Iterator[None]:
    """Build a model without memory (on the meta device) that may be no larger than what is stored.

    Args:
        stored: what there is to fill its parameters.
        source: of the description, for messages.

    Raises:
        InputError: far more parameters than that; as soon as one too many is made.
    """
    most_numbers = 2 * stored.numbers + _SLACK_NUMBERS
    most_tensors = 4 * stored.tensors + _SLACK_TENSORS

    def refuse(numbers: int, tensors: int) -> None:
        if numbers > most_numbers or tensors > most_tensors:
            raise InputError(
                f"{source}: the model that it describes needs at least {numbers:,} numbers in {tensors:,} parameters, "
                f"but its weights hold {stored.numbers:,} in {stored.tensors:,}; expected a config of these weights"
            )

    with _counted(refuse):
        yield


@contextmanager
def _counted(refuse: Callable[[int, int], None]) -> Iterator[None]:
    """Build without memory; `refuse` sees the numbers and the parameters that there are so far, after each."""
    numbers = tensors = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal numbers, tensors
        if parameter is not None:
            numbers, tensors = numbers + parameter.numel(), tensors + 1
            refuse(numbers, tensors)

    hook = register_module_parameter_registration_hook(count)
    try:
        # What is drawn for weights that are never made must not change those that are.
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            yield
    finally:
        hook.remove()


def refuse_absurd(config: Mapping[str, Any], source: str | Path) -> None:
    """Refuse numbers of layers and labels of which no model has as many, before anything makes lists of them.

    Args:
        config: a description, as JSON holds it.
        source: where it comes from, for messages.

    Raises:
        InputError: names the field.
    """
    for name, value in config.items():
        if isinstance(value, Mapping):
            refuse_absurd(value, source)
        for pattern, most in _LISTED.items():
            if isinstance(value, int) and value > most and re.search(rf"({pattern})$", str(name)):
                # A whole number in JSON may be beyond what any other number holds.
                shown = f"{value:.3g}" if value < 1e300 else "a number of more than 300 digits"
                raise InputError(f"{source}: {name} is {shown}, but at most {most:,} was expected")
