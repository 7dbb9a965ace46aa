"""The place of the plain folder that a merge of Lightning files gets."""

from __future__ import annotations

from pathlib import Path

# Of Lightning files.
SUFFIX = ".ckpt"


def folder_of(output: Path, first: Path) -> Path | None:
    """The plain folder beside a merge of Lightning files; None where there is none.

    Args:
        output: that was asked for; a file that ends in ``.ckpt``, or else nothing that such files are merged into.
        first: the file or folder of the first model.
    """
    is_lightning = first.suffix == SUFFIX and first.is_file()
    return output.with_suffix("") if is_lightning and output.suffix == SUFFIX else None
