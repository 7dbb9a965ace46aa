"""Parsers, and the options and names that most commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from torch import nn

from fusionlab import checkpoints, configs
from fusionlab.checkpoints.names import short_names
from fusionlab.commands.console import OneLineParser, input_error, readable, silence
from fusionlab.dtypes import DTYPES
from fusionlab.errors import InputError


def make_parser(name: str, description: str, seed: bool = True) -> ArgumentParser:
    """A parser with the options that every command has.

    Args:
        name: of the command.
        description: what it does.
        seed: whether anything in it is random.
    """
    parser = OneLineParser(prog=f"fusionlab {name}", description=description)
    parser.add_argument("--config", action="config", help="YAML with any of these options; a bare name will do.")
    if seed:
        parser.add_argument("--seed", type=int, default=0, help="Seed of everything random.")
    return parser


def parse(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse and build; bare config names are looked up.

    Raises:
        InputError: a wrong option or value.
    """
    silence()
    with one_sentence():
        with readable():
            parsed = parser.parse_args(configs.resolve_arguments(argv)[0])
        _refuse_nulls(parser, parsed)
        return parser.instantiate_classes(parsed)


def built(parser: ArgumentParser, values: dict[str, Any]) -> Namespace:
    """Parse and build from values in place of arguments.

    Raises:
        InputError: a wrong option or value.
    """
    with one_sentence():
        with readable():
            parsed = parser.parse_object(values)
        _refuse_nulls(parser, parsed)
        return parser.instantiate_classes(parsed)


def _refuse_nulls(parser: ArgumentParser, parsed: Namespace) -> None:
    """Refuse a null in place of a value: the parser takes it for any type, but for some it means something."""
    for name, default in parser.get_defaults(skip_validation=True).items():
        if default is None or parsed.get(name) is not None:
            continue
        try:
            parser.validate(Namespace(**{name: None}), skip_none=False, skip_required=True)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} is null; expected a value, such as {default!r}") from error
    refuse_seed(parsed.get("seed"))


def refuse_seed(seed: int | None) -> None:
    """Refuse a seed that no generator takes.

    Args:
        seed: any whole number, or None where nothing is random.

    Raises:
        InputError: it is negative, or too large.
    """
    if seed is not None and not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}; expected a whole number from 0 to {2**32 - 1}")


@contextmanager
def one_sentence() -> Iterator[None]:
    """Let what a class says about its arguments out of the parser's own exceptions."""
    try:
        yield
    except ValueError as error:
        cause = input_error(error)
        if cause is None or cause is error:
            raise
        raise cause from error


def add_output(
    parser: ArgumentParser, required: bool = True, default: str | None = None, what: str = "Folder to write."
) -> None:
    """Add the options of the output: its path, and whether it may replace an existing one."""
    parser.add_argument("--output", type=str | None, required=required, default=default, help=what)
    parser.add_argument(
        "--overwrite", type=bool, nargs="?", const=True, default=False, help="Replace an existing output."
    )


def add_dtype(parser: ArgumentParser, default: str) -> None:
    """The type to write in.

    Args:
        parser: of a command.
        default: what is taken if none is given, in words.
    """
    parser.add_argument(
        "--dtype", type=str | None, help=f"Type to write in: {', '.join(DTYPES)}; {default} if not given."
    )


def read_all(paths: Sequence[str], module: nn.Module | None = None) -> dict[str, checkpoints.Checkpoint]:
    """Read checkpoints, named by the last part of their paths (more of the path where those agree).

    Args:
        paths: of the checkpoints.
        module: of which they are state dicts, if they are.

    Raises:
        InputError: a checkpoint that cannot be read, or one named twice.
    """
    if not paths:
        raise InputError("no end model was given; expected checkpoints")
    names = short_names(paths)
    return {name: checkpoints.read(path, module) for name, path in zip(names, paths, strict=True)}
