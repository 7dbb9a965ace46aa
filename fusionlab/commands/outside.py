"""Parameters that Lightning files hold beside their models."""

from __future__ import annotations

from collections.abc import Iterable

from fusionlab.checkpoints import Checkpoint
from fusionlab.commands.console import tell

# Of the parameters that are named.
_NAMED = 3


def tell_outside(written: Iterable[Checkpoint], kept: bool = True) -> None:
    """Say on the standard error stream which parameters of Lightning files are no part of the models; once for all.

    Args:
        written: the files that outputs are written like.
        kept: whether outputs have what stands in those; folders have the models alone.
    """
    others = {checkpoint.source: checkpoint for checkpoint in written if checkpoint.outside}
    if not others:
        return
    names = list(dict.fromkeys(name for checkpoint in others.values() for name in checkpoint.outside))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    kinds = ", ".join(dict.fromkeys(type(checkpoint.model).__name__ for checkpoint in others.values()))
    stand, are, they = ("stands", "is", "it is") if len(names) == 1 else ("stand", "are", "they are")
    rest = f"{are} kept as {they} there, neither merged nor matched" if kept else f"{are} not in the output"
    tell(f"{', '.join(others)}: {', '.join(names[:_NAMED])}{more} {stand} outside of the {kinds} and {rest}.")
