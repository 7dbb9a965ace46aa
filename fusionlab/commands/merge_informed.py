"""`fusionlab merge` of files by methods that look at several parameters, and at files of statistics, but not at all."""

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
    """True if the method merges a part at a time, and the statistics that it needs are in files.

    Args:
        arguments: of the command.
    """
    methods = merging_options.merge_methods(arguments)
    if len(methods) != 1:
        return False
    ((name, values),) = methods.items()
    method = find_method(name)
    return method.by_parts(**values) and (arguments.statistics is not None or not method.kinds(**values))


def known_of(arguments: Namespace, models: Mapping[str, StoredModel]) -> Informed | None:
    """The knowledge that the method needs of models; None where models must be read to find it.

    Args:
        arguments: of the command.
        models: as they lie on the disk.

    Raises:
        InputError: a file that holds none, statistics of what is no parameter, or none of a model.
    """
    from fusionlab.streaming.knowing import informed  # noqa: PLC0415 - imports transformers

    ((name, values),) = merging_options.merge_methods(arguments).items()
    given, has_data = merging_options.given_statistics(arguments), arguments.get("data") is not None
    return informed(list(models.values()), find_method(name), given, values, has_data)


def described(arguments: Namespace) -> dict[str, object]:
    """The files of statistics, for the description of an output that a later call may go on with."""
    return {"statistics": files_of(expanded(path) for path in arguments.statistics or [])}
