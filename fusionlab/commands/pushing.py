"""Uploading the output of a command that was asked to."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import Namespace

from fusionlab import printing
from fusionlab.checkpoints.publishing import push, refuse_push
from fusionlab.commands.repeat import REPEAT
from fusionlab.errors import InputError


def refuse_unpushable(arguments: Namespace) -> None:
    """Refuse before any work what could not be uploaded; nothing where no upload is asked for.

    Args:
        arguments: of the command.

    Raises:
        InputError: see `fusionlab.checkpoints.publishing.refuse_push`.
    """
    if arguments.push is not None:
        refuse_push(arguments.push, arguments.overwrite)


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
