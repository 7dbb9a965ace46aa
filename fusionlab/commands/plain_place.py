"""The place of the plain folder that a merge of Lightning files gets."""

from __future__ import annotations

from pathlib import Path

# Of Lightning files.
SUFFIX = ".ckpt"


def folder_of(output: Path, first: Path) -> Path | None:
    """The plain folder that a merge of Lightning files gets; None where its models are no such files.

    Args:
        output: that was asked for: a file that ends in ``.ckpt``, beside which the folder lies, or the folder itself.
        first: the file or folder of the first model.
    """
    if first.suffix != SUFFIX or not first.is_file():
        return None
    return output.with_suffix("") if output.suffix == SUFFIX else output
