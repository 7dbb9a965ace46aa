"""TensorBoard logs of runs that start at one moment, each in a folder of its own."""

import os
from pathlib import Path

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only


class OwnFolder(TensorBoardLogger):
    """Lightning's logger, in a folder ``version_0``, ``version_1`` and so on that no other run takes too.

    Lightning looks which folders there are and makes the next one later: of runs that start together, each would keep
    its checkpoints among those of the others.
    """

    @property
    def is_new(self) -> bool:
        """True while the run has taken no folder yet and was given none."""
        return self._version is None

    @property
    def version(self) -> int | str:
        """The number of the run, or the name that it was given."""
        if self._version is None:
            number = int(super().version)
            is_local = "://" not in self.root_dir
            # Other processes of the same run write nothing.
            self._version = rank_zero_only(self._made, default=number)(number) if is_local else number
        return self._version

    def _made(self, number: int) -> int:
        """Make a folder of the first number, from the given one on, that has none."""
        folder = Path(os.path.expandvars(self.root_dir)).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                (folder / f"version_{number}").mkdir()
            except FileExistsError:
                number += 1
            else:
                return number
