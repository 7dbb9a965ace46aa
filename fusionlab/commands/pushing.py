"""Uploading the output of a command that was asked to."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import Namespace

from fusionlab import printing
from fusionlab.checkpoints.files import SAFETENSORS
from fusionlab.checkpoints.publishing import push, refuse_push
from fusionlab.commands.repeat import REPEAT
from fusionlab.errors import InputError
from fusionlab.paths import expanded


def refuse_unpushable(arguments: Namespace, like: str | None = None) -> None:
    """Refuse before any work what could not be uploaded; nothing where no upload is asked for.

    Args:
        arguments: of the command.
        like: the checkpoint in whose format the output is; None where that is a folder in any case.

    Raises:
        InputError: an output that is one file, or see `fusionlab.checkpoints.publishing.refuse_push`.
    """
    if arguments.push is None:
        return
    is_file = like is not None and _becomes_file(expanded(like), expanded(arguments.output))
    if is_file and arguments.get("architecture") is None:
        raise InputError(
            f"push is {arguments.push}, but what is made of {like} is one file; expected checkpoint folders with "
            f"--push, or no --push"
        )
    refuse_push(arguments.push, arguments.overwrite)


def _becomes_file(source: Path, output: Path) -> bool:
    """True if what is written like a checkpoint is a Lightning file or a state dict in one file."""
    return source.is_file() and (source.suffix == ".ckpt" or output.suffix == Path(SAFETENSORS).suffix)


def push_output(arguments: Namespace, output: Path) -> None:
    """Upload a complete output where that was asked for, and tell its address.

    The config that repeats the command stays here: it holds paths of this machine.

    Args:
        arguments: of the command.
        output: what it wrote.

    Raises:
        InputError: a file, which is no repository, or an upload that failed; the output stays.
    """
    if arguments.push is None:
        return
    if not output.is_dir():
        raise InputError(f"{output} is complete, but was not uploaded to {arguments.push}: expected a folder to push")
    address = push(output, arguments.push, [REPEAT])
    printing.results().print(f"Uploaded to {address}", highlight=False, soft_wrap=True)
