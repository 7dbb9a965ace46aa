"""Inference makes models that nobody asked for: what transformers says of their configs is nobody's concern."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging


@contextmanager
def unheard() -> Iterator[None]:
    """Silence what transformers logs inside the block."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
