"""Files beside the weights of a checkpoint that are not copied from another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_beside(folder: Path, contents: Mapping[str, str | bytes | None]) -> None:
    """Write what lies beside the weights of a checkpoint, once side files are copied.

    Args:
        folder: the checkpoint folder being written.
        contents: of files by path in it; None for one that is not to be there.
    """
    for name, content in contents.items():
        path = folder / name
        if content is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_bytes(content)
