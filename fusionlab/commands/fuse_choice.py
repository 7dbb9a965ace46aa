"""The matching that `fusionlab fuse` chooses for models that are larger than memory, by their files."""

from __future__ import annotations

from jsonargparse import Namespace

from fusionlab.advice import Choice, choose_stored
from fusionlab.commands import match_stream
from fusionlab.commands.merge import reads_files
from fusionlab.commands.merge_informed import is_informed
from fusionlab.commands.unknown_class import unknown_among
from fusionlab.streaming import open_models

# Options whose values ask for whole models.
_WHOLE = ("data", "probes", "samples", "length", "example", "polish", "search")


def chosen(arguments: Namespace) -> Choice | None:
    """The matching that advice chooses for large models, told from their files.

    Args:
        arguments: of the command, whose matching is ``auto``.

    Returns:
        The choice; None where models are read as a whole in any case, which are looked at then.

    Raises:
        InputError: checkpoints that cannot be read.
    """
    if asks_for_whole(arguments) or not reads_files() or len(arguments.ckpts) < 2:
        return None
    found = open_models(arguments.ckpts, arguments.names, arguments.base)
    models = {label: model for label, model in found.items() if model is not None}
    if len(models) < len(found) or (match_stream.is_small(models, arguments) and unknown_among(models) is None):
        return None
    return choose_stored(models)


def asks_for_whole(arguments: Namespace) -> bool:
    """True if an option asks for whole models.

    Args:
        arguments: of the command.
    """
    if arguments.statistics is not None and not is_informed(arguments):
        return True
    return any(arguments.get(name) is not None for name in _WHOLE) or arguments.untie
