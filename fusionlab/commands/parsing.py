"""Parsers, and the options and names that most commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from torch import nn

from fusionlab import checkpoints, configs, printing
from fusionlab.checkpoints.files import read_config
from fusionlab.checkpoints.fp8 import has_scaled
from fusionlab.checkpoints.fp8 import note as scaled_note
from fusionlab.checkpoints.hub import locate, use_architecture
from fusionlab.checkpoints.names import short_names
from fusionlab.commands.console import OneLineParser, input_error, readable, silence, tell
from fusionlab.commands.examples import COMMON
from fusionlab.commands.lost_inputs import refuse_lost_inputs
from fusionlab.commands.option_groups import add_fields
from fusionlab.errors import InputError


@dataclass(frozen=True)
class SharedOptions:
    """Options that most commands have.

    Attributes:
        seed: seed of everything random.
        output: folder to write.
        overwrite: whether an existing output is replaced.
        resume: whether an earlier call with this option that was ended is gone on with, and what this one leaves
            unfinished kept: files of weights that are complete are not written again.
        push: repository of the Hugging Face hub, such as ``name/model``, that the complete output is uploaded to; of a
            fusion the merged model. One that does not exist is made, and is private. ``fusionlab.yaml``, which holds
            paths, is not uploaded.
        json: whether results are printed as one JSON document, and not for people.
    """

    seed: int = 0
    output: str | None = None
    overwrite: bool = False
    resume: bool = False
    push: str | None = None
    json: bool = False


@dataclass(frozen=True)
class CheckpointOptions:
    """End models on disk or on the hub.

    Attributes:
        ckpts: end models: folders (of LoRA adapters too), .ckpt files or hub ids.
        ckpt: a checkpoint: folder (of a LoRA adapter too), .ckpt file or hub id.
        architecture: the folder or hub id whose config and tokenizer bare state dicts among the checkpoints have
            (.safetensors, .pt, .pth, .bin); its weights are not looked at.
        names: what the models are called in tables, plots and files, one for each in their order; else what tells their
            paths apart.
    """

    ckpts: Sequence[str]
    ckpt: str
    names: Sequence[str] | None = None
    architecture: str | None = None


def make_parser(name: str, description: str, seed: bool = True) -> ArgumentParser:
    """A parser with the options that every command has.

    Args:
        name: of the command.
        description: what it does.
        seed: whether anything in it is random.
    """
    parser = OneLineParser(prog=f"fusionlab {name}", description=description)
    common_group(parser)
    parser.add_argument("--config", action="config", help="YAML with any of these options; a shipped one by its name.")
    if seed:
        add_fields(parser, SharedOptions, ("seed",))
    return parser


def common_group(parser: ArgumentParser) -> Any:
    """The group of the options that most people use; made by the first call."""
    found = parser.groups.get(COMMON) if parser.groups else None
    return parser.add_argument_group(COMMON, name=COMMON) if found is None else found


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
        refuse_lost_inputs(parsed)
        use_architecture(parsed.get("architecture"))
        if parsed.get("json"):
            printing.ask_for_json()
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
    """Raise what a class says about its arguments in place of the parser's own exceptions."""
    try:
        yield
    except ValueError as error:
        cause = input_error(error)
        if cause is None or cause is error:
            raise
        raise cause from error


def add_output(parser: ArgumentParser, required: bool = True, **changes: Any) -> None:
    """Add the options of the output: its path, and whether it may replace an existing one.

    Args:
        parser: of a command.
        required: whether the command does nothing without it.
        changes: arguments of ``add_argument`` that the path has otherwise than in other commands.
    """
    changed = {"output": {"required": required, **changes}}
    add_fields(common_group(parser), SharedOptions, ("output", "overwrite"), changed)


def add_resume(parser: ArgumentParser) -> None:
    """Add the switch to outputs that a later call may go on with."""
    add_fields(parser, SharedOptions, ("resume",))


def add_push(parser: ArgumentParser) -> None:
    """Add the repository that the output is uploaded to."""
    add_fields(parser, SharedOptions, ("push",))


def add_json(parser: ArgumentParser) -> None:
    """Add the switch to results for machines."""
    add_fields(parser, SharedOptions, ("json",))


def add_checkpoints(parser: ArgumentParser) -> None:
    """Add the checkpoints that a command takes by their places."""
    add_fields(parser, CheckpointOptions, ("ckpts",), positional=("ckpts",))


def add_names(parser: ArgumentParser) -> None:
    """Add what the models are called."""
    add_fields(common_group(parser), CheckpointOptions, ("names",))


def add_architecture(parser: ArgumentParser) -> None:
    """Add the description that bare state dicts have."""
    add_fields(common_group(parser), CheckpointOptions, ("architecture",))


def read_all(
    paths: Sequence[str],
    module: nn.Module | None = None,
    base: str | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, checkpoints.Checkpoint]:
    """Read checkpoints, named as they are to be, else by what tells their paths apart.

    Args:
        paths: of the checkpoints.
        module: of which they are state dicts, if they are.
        base: what adapters among them change, where it is not what they name.
        names: of the models, one for each.

    Raises:
        InputError: a checkpoint that cannot be read, or one named twice.
    """
    if not paths:
        raise InputError("no end model was given; expected checkpoints")
    called = short_names(paths, names)
    for path in paths if module is None else ():
        if has_scaled(location := locate(path)):
            tell(scaled_note(path, read_config(location)))
    return {name: checkpoints.read(path, module, base) for name, path in zip(called, paths, strict=True)}
