"""The place of the plain folder that a merge of Lightning files gets."""

from __future__ import annotations

from pathlib import Path

# Of Lightning files.
SUFFIX = ".ckpt"
# Of files in other formats, which a merge of Lightning files is not.
_OTHERS = (".pt", ".pth", ".bin", ".safetensors")


def is_folder(output: Path, first: Path) -> bool:
    """True if a merge of Lightning files is written as a plain folder alone, which is not called as a file is.

    Args:
        output: that was asked for.
        first: the file or folder of the first model.
    """
    return _is_lightning(first) and output.suffix not in (SUFFIX, *_OTHERS)


def folder_of(output: Path, first: Path) -> Path | None:
    """The plain folder beside a merge of Lightning files; None where there is none.

    Args:
        output: that was asked for; a file that ends in ``.ckpt``, or else nothing that has a folder beside it.
        first: the file or folder of the first model.
    """
    return output.with_suffix("") if _is_lightning(first) and output.suffix == SUFFIX else None


def _is_lightning(first: Path) -> bool:
    return first.suffix == SUFFIX and first.is_file()
