"""A module of the user's own, from a function in a Python file that the command line names.

The file is run, since the user names it where commands are typed. No config and no checkpoint can name one.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace
from torch import Tensor, nn

from fusionlab.commands.option_groups import add_fields
from fusionlab.errors import InputError, first_line
from fusionlab.paths import expanded
from fusionlab.symmetry import blueprint

OPTION = "--example"
EXPECTED = "expected (model, example_inputs), a torch.nn.Module and tensors by the names of its forward's arguments"


@dataclass(frozen=True)
class ExampleOptions:
    """A module of the user's own.

    Attributes:
        example: for a module of your own, ``FILE.py:FUNCTION``: a function without arguments in a Python file of yours,
            which is run. It returns the module and example inputs, a batch of at least two by the names of the
            forward's arguments. Checkpoints are its state dicts then (.safetensors, .pt). On the command line only.
    """

    example: str | None = None


def add_example(parser: ArgumentParser) -> None:
    """Add the option that names a module of the user's own."""
    add_fields(parser, ExampleOptions)


def own_module(arguments: Namespace, argv: Sequence[str]) -> nn.Module | None:
    """The module that the command line names, its symmetry inferred; None where it names none.

    Args:
        arguments: parsed.
        argv: what they were parsed from: only what stands there is run.

    Raises:
        InputError: a config names one; no such file or function, one that fails, or returns something else.
        SymmetryError: the module does not run on its inputs, or cannot be traced.
    """
    if arguments.example is None:
        return None
    if arguments.example != _typed(argv):
        raise InputError(
            f"a config names the example {arguments.example!r}, which is code to be run; expected it on the command "
            f"line, as {OPTION} FILE.py:FUNCTION"
        )
    module, inputs = _made(arguments.example)
    blueprint(module, inputs)
    return module


def _typed(argv: Sequence[str]) -> str | None:
    """The last value of the option among arguments."""
    found = None
    for position, argument in enumerate(argv):
        if argument.startswith(f"{OPTION}="):
            found = argument.removeprefix(f"{OPTION}=")
        elif argument == OPTION and position + 1 < len(argv):
            found = argv[position + 1]
    return found


def _made(text: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """The function's result, looked at."""
    path, _, name = text.rpartition(":")
    if not path or not name.isidentifier():
        raise InputError(f"example is {text!r}; expected a Python file and a function in it, as module.py:make_example")
    file = expanded(path)
    if not file.is_file() or file.suffix != ".py":
        raise InputError(f"example names {path}, which is no Python file; expected one, as module.py:make_example")
    made = _run(file, name)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise InputError(f"{text} returned {_kind(made)}; {EXPECTED}")
    module, inputs = made
    if not isinstance(inputs, Mapping) or not inputs:
        raise InputError(f"{text} returned {_kind(inputs)} as example inputs; {EXPECTED}")
    for argument, tensor in inputs.items():
        if not isinstance(argument, str) or not isinstance(tensor, Tensor):
            raise InputError(f"{text} returned {_kind(tensor)} as the input {argument!r}; {EXPECTED}")
        if tensor.ndim < 1 or len(tensor) < 2:
            raise InputError(
                f"{text} returned an input {argument!r} of shape {tuple(tensor.shape)}; expected a batch of at least "
                f"two"
            )
    return module.eval(), dict(inputs)


def _run(file: Path, name: str) -> Any:
    """The result of a function in a file; whatever goes wrong there is told in one sentence."""
    with _beside(file):
        try:
            spec = importlib.util.spec_from_file_location(f"fusionlab_example_{file.stem}", file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            # Classes of the file are looked up there when they are copied.
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            function = getattr(module, name, None)
            if not callable(function):
                raise InputError(f"{file} has no function {name}; expected one that returns (model, example_inputs)")
            return function()
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{file} failed when {name} was asked for ({type(error).__name__}: {first_line(error)}); expected a "
                f"function without arguments that returns (model, example_inputs)"
            ) from error


@contextlib.contextmanager
def _beside(file: Path) -> Iterator[None]:
    """Run a file as Python runs scripts: what lies beside it can be imported. It writes no bytecode there.

    What it prints goes to standard error, since a command's output may be read by a program; what it draws changes no
    other draw.
    """
    path, without_bytecode = list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, str(file.parent.absolute()))
    sys.dont_write_bytecode = True
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng(devices=[]):
            yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = without_bytecode


def _kind(value: object) -> str:
    """The type of a value, in words."""
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return f"a {type(value).__name__}"
