"""The messages of commands: errors in one line, and nothing that a user cannot act on."""

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from jsonargparse import ArgumentParser

from fusionlab.errors import InputError
from fusionlab.sentences import sentence


class OneLineParser(ArgumentParser):
    """A parser whose errors are one line and never a page of usage."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the error as the sentence that the main program prints."""
        raise InputError(_one_sentence(message)) from ex


def tell(sentence: str) -> None:
    """Print a sentence on the standard error stream, beside results on the standard output; nothing if it is closed."""
    with suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)


def silence() -> None:
    """Hide messages that a user cannot act on: devices found, product tips, hints on loader workers."""
    for logger in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.seed"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    if (lightning := sys.modules.get("lightning.pytorch.utilities.warnings")) is not None:
        warnings.filterwarnings("ignore", category=lightning.PossibleUserWarning)
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
        # Refining and polishing train parameters around models that stay in eval mode, and validate on request only.
        ".*module.s. in eval mode at the start of training.*",
        # A checkpoint holds the present stage as it is after the step, which is where it goes on.
        "(?s).*no pre-optimization state was saved.*",
        ".*defined a .validation_step. but have no .val_dataloader.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def input_error(error: ValueError) -> InputError | None:
    """The error of a class about its arguments: it arrives inside the parser's own exception, with the whole config."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, InputError):
        cause = cause.__cause__
    if cause is None and "Does not validate against any of the Union subtypes" in str(error):
        # For a list of classes, the parser keeps only the words.
        reasons = re.findall(r"^  - (?!Not a valid subclass|Expected a <class)(.+)$", str(error), re.MULTILINE)
        return InputError("; ".join(reasons)) if reasons else None
    return cause


@contextmanager
def readable() -> Iterator[None]:
    """Say in one sentence that options cannot be read, whatever a parser raises on them.

    Values of unexpected types and depths end in any exception inside it.

    Raises:
        InputError: in place of an exception that has no sentence of its own.
    """
    try:
        yield
    except Exception as error:
        if (isinstance(error, ValueError) and input_error(error)) or sentence(error):
            raise
        told = _one_sentence(f"{type(error).__name__}: {error}")[:200]
        raise InputError(
            f"the options cannot be read ({told}); expected values of the types that --help lists"
        ) from error


def _one_sentence(message: str) -> str:
    """The part of a parser's message that says what is wrong, on one line.

    For a key that may be one of several types, the parser lists why each of them failed and repeats the whole value;
    what helps is the name of the key and the reasons other than that it is neither null nor a list.
    """
    key = re.search(r'Parser key "([^"]+)"', message)
    # What a reason ends with a colon for stands on the line after it.
    told = re.sub(r"(class_path \S+):\n\s+(?=[^\s-])", r"\1: ", message)
    reasons = [
        line.strip().removeprefix("- ")
        for line in told.splitlines()
        if line.lstrip().startswith("- ") and "NoneType" not in line
    ]
    reasons = [reason for reason in reasons if reason != "Expected a <class 'list'>"] or reasons
    if key and reasons:
        message = f"{key.group(1)}: {'; '.join(dict.fromkeys(reasons))}"
    message = re.sub(r"a <class '(\w+)'>", r"\1", message)
    message = re.sub(
        r"Expected a dot import path string: (\S+)", r"there is no class \1; expected its import path", message
    )
    # A message may pass through here twice, from the parser of a class inside another.
    if re.search(r"is not accepted|unrecognized arguments", message) and "--help" not in message:
        message = f"{message.strip().rstrip('.')}; expected one of the options that --help lists"
    return re.sub(r"\s+", " ", message).strip().rstrip(".")
