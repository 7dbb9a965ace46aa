"""The messages of commands: errors in one line, and nothing that a user cannot act on."""

import logging
import re
import sys
import warnings
from argparse import SUPPRESS, HelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from jsonargparse import ArgumentParser

from fusionlab.commands.examples import EXAMPLES, arranged
from fusionlab.commands.stubs import look_in_own_path
from fusionlab.errors import InputError
from fusionlab.printing import is_quiet
from fusionlab.sentences import sentence
from fusionlab.suggestions import did_you_mean, nearest

_UNKNOWN = re.compile(r"Option '([\w.-]+)' is not accepted|unrecognized arguments: (.*)")
_LACKING = re.compile(r"(?<=the following arguments are required: )[\w.]+(?:, [\w.]+)*$")
look_in_own_path()


class OneLineParser(ArgumentParser):
    """A parser whose errors are one line and never a page of usage."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the error as the sentence that the main program prints."""
        raise InputError(_one_sentence(self._as_typed(message), self._known())) from ex

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        """The help, common options first; of a command that has examples, with those."""
        command = str(self.prog).removeprefix("fusionlab ")
        for action in self._actions:
            # Shown by some versions of jsonargparse where shtab is installed; `fusionlab completion` has it all.
            if "--print_shtab" in action.option_strings:
                action.help = SUPPRESS
        printed = super().format_help(formatter) if formatter is not None else super().format_help()
        return arranged(printed, command) if command in EXAMPLES else printed

    def _as_typed(self, message: str) -> str:
        """A message about options in the words that they are typed in."""
        # The parser of a class inside a command knows only the ends of options.
        if str(self.prog).startswith("fusionlab "):
            options = {action.dest: flag for action in self._actions for flag in action.option_strings[:1]}
            message = _LACKING.sub(
                lambda found: ", ".join(options.get(name, name) for name in found[0].split(", ")), message
            )
        for action in self._actions:
            flag = next((flag.lstrip("-") for flag in action.option_strings if flag.startswith("--")), action.dest)
            if flag.replace("-", "_") != action.dest:
                message = message.replace(f'Parser key "{action.dest}"', f'Parser key "{flag}"')
        return re.sub(
            r"a typing\.Literal\[([^\]]*)\]", lambda found: f"one of {found[1].replace(chr(39), '')}", message
        )

    def _known(self) -> list[str]:
        """The options that there are, as they are written, without dashes."""
        flags = {flag for action in self._actions for flag in action.option_strings if flag.startswith("--")}
        return sorted(flag.lstrip("-") for flag in flags if not flag.endswith((".help", "+")))


def tell(sentence: str) -> None:
    """Print a sentence on the standard error stream, unless quiet was asked for or the stream is closed."""
    if is_quiet():
        return
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
        # Metrics of test sets, which fit in memory as the data do.
        ".*will save all (extracted features|targets and predictions|predictions and targets).* in.* buffer.*",
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


def _no_class(found: re.Match[str]) -> str:
    """The sentence for a class that does not exist, with the nearest data module or task."""
    import fusionlab.data  # noqa: PLC0415 - only what is wrong needs them
    import fusionlab.tasks  # noqa: PLC0415

    known = [name for module in (fusionlab.data, fusionlab.tasks) for name in module.__all__ if name[0].isupper()]
    return f"there is no class {found[1]}; expected its import path{did_you_mean(found[1], known)}"


def _hint(key: str | None, arguments: str | None, known: Sequence[str]) -> str:
    """The end of a sentence: an option to write in place of one that there is none of."""
    words = (arguments or "").split()
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    name = key or next(iter(options), "").lstrip("-")
    if words and not options:
        return "; expected an option before it (--help lists them)"
    close = nearest(name, known)
    hint = f", did you mean {'' if key else '--'}{close[0]}?" if close else ""
    return f"; expected one of the options that --help lists{hint}"


def _one_sentence(message: str, known: Sequence[str] = ()) -> str:
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
        inside = (
            _LACKING.sub(lambda found: f"--{key[1]}." + found[0].replace(", ", f", --{key[1]}."), reason.rstrip("."))
            for reason in reasons
        )
        message = f"{key.group(1)}: {'; '.join(dict.fromkeys(inside))}"
    message = re.sub(r"a <class '(\w+)'>", r"\1", message)
    message = re.sub(r"Expected a dot import path string: (\S+)", _no_class, message)
    # A message may pass through here twice, from the parser of a class inside another.
    if (ambiguous := re.search(r"ambiguous option: (\S+) could match (.*)", message)) is not None:
        found = [name for name in ambiguous.group(2).split(", ") if not name.endswith((".help", "+"))]
        message = f"there is no option {ambiguous.group(1)}, did you mean {' or '.join(found)}?"
    elif "--help" not in message and (unknown := _UNKNOWN.search(message)) is not None:
        message = f"{message.strip().rstrip('.')}{_hint(unknown.group(1), unknown.group(2), known)}"
    return re.sub(r"\s+", " ", message).strip().rstrip(".")
