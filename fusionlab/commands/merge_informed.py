"""`fusionlab merge` of files by files of statistics: for methods that need nothing else of the models."""

from __future__ import annotations

from collections.abc import Mapping

from jsonargparse import Namespace

from fusionlab.commands import merging_options
from fusionlab.merging import find_method
from fusionlab.paths import expanded
from fusionlab.streaming import StoredModel, files_of

TYPE_CHECKING = False  # most methods do without what knows classes
if TYPE_CHECKING:
    from fusionlab.streaming.informed import Informed


def is_informed(arguments: Namespace) -> bool:
    """True if there are files of statistics, and all that the method needs is statistics.

    Args:
        arguments: of the command.
    """
    methods = list(merging_options.merge_methods(arguments))
    return arguments.statistics is not None and len(methods) == 1 and find_method(methods[0]).together is not None


def known_of(arguments: Namespace, models: Mapping[str, StoredModel]) -> Informed | None:
    """The statistics of models in the files that the arguments name; None where models must be read for them.

    Args:
        arguments: of the command.
        models: as they lie on the disk.

    Raises:
        InputError: a file that holds none, statistics of what is no parameter, or none of a model.
    """
    from fusionlab.streaming.informed import informed  # noqa: PLC0415 - imports transformers

    (method,) = merging_options.merge_methods(arguments)
    given, has_data = merging_options.given_statistics(arguments), arguments.get("data") is not None
    return informed(list(models.values()), find_method(method), given, has_data)


def described(arguments: Namespace) -> dict[str, object]:
    """The files of statistics, for the description of an output that a later call may go on with."""
    return {"statistics": files_of(expanded(path) for path in arguments.statistics or [])}
