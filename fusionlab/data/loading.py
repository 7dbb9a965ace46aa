"""The data loaders of all data modules."""

import torch


def training_order() -> torch.Generator:
    """A generator for shuffling that follows the Trainer's seed.

    It starts from the seed itself, not from the current state of torch's generator: two runs with one seed see the
    batches in one order even when their models draw different numbers of random weights.

    Returns:
        A CPU generator.
    """
    return torch.Generator().manual_seed(torch.initial_seed())
