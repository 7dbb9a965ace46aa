"""Checkpoints of a training that is still running, written as durably as everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from fusionlab.atomic import atomic_file


class DurableCheckpointIO(TorchCheckpointIO):
    """Writes Lightning's files whole and synced: a full disk or a kill leaves the last one as it was."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: what Lightning keeps.
            path: the file; a URL is left to Lightning.
            storage_options: none are known.

        Raises:
            OSError: the disk failed or is full; the error names `path`.
        """
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        with atomic_file(path, overwrite=True) as temporary:
            torch.save(checkpoint, temporary)
