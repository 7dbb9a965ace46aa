"""The data loaders of all data modules."""

import torch

from fusionlab.errors import InputError

# More than any data set has samples, and than some of torch's samplers count to.
MOST_SAMPLES = 2**31 - 1


def refuse_large_batches(**sizes: int | None) -> None:
    """Refuse sizes of batches that no sampler counts to.

    Args:
        sizes: by the option's name.

    Raises:
        InputError: names the option.
    """
    for name, size in sizes.items():
        if size is not None and size > MOST_SAMPLES:
            raise InputError(f"data.{name} is {size}; expected at most {MOST_SAMPLES:,}")


def training_order() -> torch.Generator:
    """A generator for shuffling that follows the Trainer's seed.

    It starts from the seed itself, not from the current state of torch's generator: two runs with one seed see the
    batches in one order even when their models draw different numbers of random weights.

    Returns:
        A CPU generator.
    """
    return torch.Generator().manual_seed(torch.initial_seed())
