"""Bare state dicts, with a model's description beside them: a folder of links stands in for both."""

from __future__ import annotations

import os
import shutil
import weakref
from contextlib import ExitStack
from pathlib import Path

from fusionlab.atomic import scratch_folder
from fusionlab.checkpoints.files import CONFIG, PICKLE, SAFETENSORS, read_config
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.errors import InputError
from fusionlab.paths import stands_for

SUFFIXES = {".safetensors": SAFETENSORS, ".pt": PICKLE, ".pth": PICKLE, ".bin": PICKLE}


class Architecture:
    """The description that bare state dicts are read with, and the folders that stand in for them.

    Folders are removed when this is forgotten, or the process ends.

    Args:
        folder: with the config, and the tokenizer or preprocessor if there is one.

    Raises:
        InputError: a folder without a config, or a file.
    """

    def __init__(self, folder: Path) -> None:
        if folder.is_file():
            raise InputError(f"architecture is {folder}, a file; expected a folder with a {CONFIG}, or a hub id")
        read_config(folder)
        self.folder = folder
        # Removed by the next run where this one is killed.
        held = ExitStack()
        self.place = held.enter_context(scratch_folder())
        weakref.finalize(self, held.close)
        self.known: dict[Path, Path] = {}

    def stand_in(self, file: Path) -> Path:
        """A folder with the description and a link to the weights.

        Args:
            file: a state dict.
        """
        file = file.absolute()
        if file not in self.known:
            folder = self.place / str(len(self.known)) / file.stem
            folder.mkdir(parents=True)
            copy_side_files(self.folder, folder)
            weights = folder / SUFFIXES[file.suffix]
            try:
                weights.symlink_to(file)
            except OSError:  # a system that lets not everybody make links
                shutil.copyfile(file, weights)
            stands_for(folder, file)
            stands_for(weights, file)
            stands_for(folder / CONFIG, self.folder / CONFIG)
            self.known[file] = folder
        return self.known[file]


_used: list[Architecture] = []


def use(folder: Path | None) -> None:
    """Read bare state dicts as models of a description from now on.

    Args:
        folder: with the config; None for as nothing.

    Raises:
        InputError: a folder without a config, or a file.
    """
    made = None if folder is None else Architecture(folder)
    _used[:] = [] if made is None else [made]


def stand_in(path: Path) -> Path:
    """The folder that stands in for a bare state dict, where a description is used; any other path as it is."""
    if not _used or path.suffix not in SUFFIXES or not os.path.isfile(path):
        return path
    return _used[0].stand_in(path)
