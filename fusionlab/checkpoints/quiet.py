"""Loading and saving without the libraries' own chatter: what goes wrong is told once, as an InputError."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

_LOGGERS = ("timm", "huggingface_hub")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, log lines and progress bars of transformers, timm and the hub client inside the block."""
    verbosity = transformers_logging.get_verbosity()
    progress = transformers_logging.is_progress_bar_enabled()
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    # Above ERROR, because transformers logs its load report as a warning but some refusals as errors.
    transformers_logging.set_verbosity(logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if progress:
            transformers_logging.enable_progress_bar()
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
