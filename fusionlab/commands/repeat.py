"""The config beside what a command wrote, with which the command can be repeated."""

from __future__ import annotations

from collections.abc import Sequence

from jsonargparse import ArgumentParser

from fusionlab import __version__, configs
from fusionlab.checkpoints.card import Parent, hash_lines

# What it is called.
REPEAT = "fusionlab.yaml"
# Options that say where to write, what to print or where to go on from, and not what.
WHERE = ("config", "output", "overwrite", "resume", "push", "ckpt_path", "json")


def repeat_config(parser: ArgumentParser, argv: Sequence[str]) -> str:
    """The text of a config with every option of a command that is not its default.

    Paths stand as they were given, so the command is repeated in the same working folder.

    Args:
        parser: of the command.
        argv: arguments that it has taken.
    """
    given = parser.parse_args(configs.resolve_arguments(argv)[0])
    for name in WHERE:
        given.pop(name, None)
    options = parser.dump(given, skip_default=True, skip_validation=True)
    command = parser.prog
    said = f"# Written by fusionlab {__version__}. To repeat it: {command} --config {REPEAT} --output NEW_FOLDER"
    return f"{said}\n{options}"


def with_hashes(repeat: str, parents: Sequence[Parent]) -> str:
    """A config with comments that say of which files the output was made.

    Args:
        repeat: of the command.
        parents: the models.
    """
    return repeat + "".join(f"# {line}\n" for line in hash_lines(parents))
