"""How commands talk: errors in one line, no messages that tell a user nothing to act on."""

import logging
import re
import warnings
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.utilities.warnings import PossibleUserWarning

from fusionlab.errors import InputError


class OneLineParser(LightningArgumentParser):
    """Lightning's parser, except that an error is one line and never a page of usage."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the error as the sentence that the main program prints."""
        raise InputError(_one_sentence(message)) from ex


def silence() -> None:
    """Hide messages that tell a user nothing to act on: devices found, product tips, hints on loader workers."""
    for logger in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.seed"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=PossibleUserWarning)
    for module in ("lightning", "torch"):
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=module)
        warnings.filterwarnings("ignore", category=FutureWarning, module=module)
    for message in (
        ".*LightningCLI's args parameter.*",
        ".*litlogger.*",
        ".*litmodels.*",
        ".*dirpath has changed.*",
        ".*isinstance.*LeafSpec.*",
        # Fusing optimises nothing, and methods without statistics pass over no data.
        ".*configure_optimizers. returned .None.*",
        ".*Total length of .* across ranks is zero.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def _one_sentence(message: str) -> str:
    """The part of a parser's message that says what is wrong, on one line.

    For a key that may be one of several types, the parser lists why each of them failed and repeats the whole value;
    what helps is the name of the key and the reasons other than that it is not null.
    """
    key = re.search(r'Parser key "([^"]+)"', message)
    reasons = [
        line.strip().removeprefix("- ")
        for line in message.splitlines()
        if line.lstrip().startswith("- ") and "NoneType" not in line
    ]
    if key and reasons:
        message = f"{key.group(1)}: {'; '.join(reasons)}"
    return re.sub(r"\s+", " ", message).strip().rstrip(".")
