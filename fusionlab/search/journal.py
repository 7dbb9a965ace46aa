"""The journal of a search: Optuna's file of trials, which is made with the first trial that is worth keeping."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionlab.errors import InputError, first_line

if TYPE_CHECKING:  # an extra
    import optuna


class Journal:
    """The trials of one search in a file that may hold those of several.

    The file, and the search in it, are written with the first trial that has a finite score: a search that is refused
    leaves none.

    Args:
        file: of the journal; need not be there.
        name: of the search in it.

    Raises:
        InputError: a file that cannot be read.
    """

    def __init__(self, file: Path, name: str) -> None:
        self.file, self.name = file, name
        self._study: optuna.Study | None = None
        self._waiting: list[optuna.trial.FrozenTrial] = []
        with optuna_quietly() as library, _told(file):
            if file.exists():
                _require_operations(file)
                storage = _storage(library, file)
                if name in library.get_all_study_names(storage):
                    self._study = library.load_study(study_name=name, storage=storage)

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """The trials that the file holds of this search."""
        return [] if self._study is None else self._study.get_trials()

    def add(self, trial: optuna.trial.FrozenTrial) -> None:
        """Write a trial.

        Args:
            trial: one that has no value waits for the first that has.

        Raises:
            InputError: a file that cannot be written.
        """
        with optuna_quietly() as library, _told(self.file):
            if self._study is None:
                self._waiting.append(trial)
                if trial.value is None:
                    return
                self.file.parent.mkdir(parents=True, exist_ok=True)
                storage = _storage(library, self.file)
                self._study = library.create_study(study_name=self.name, storage=storage, direction="maximize")
                self._study.add_trials(self._waiting)
                return
            self._study.add_trial(trial)


def refuse_journal(file: str | None) -> None:
    """Refuse a journal that cannot be read, before any work.

    Args:
        file: of the journal; None for none.

    Raises:
        InputError: a file that is no journal.
    """
    if file is not None:
        Journal(Path(file), "")


@contextmanager
def optuna_quietly() -> Iterator[Any]:
    """Optuna, without its messages about each trial and about what is experimental."""
    import optuna  # noqa: PLC0415 (an extra)
    import optuna.storages.journal  # noqa: PLC0415

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield optuna
    finally:
        optuna.logging.set_verbosity(before)


def _require_operations(file: Path) -> None:
    """Refuse a file that does not begin as a journal does; Optuna would take one line of anything for a cut write."""
    with file.open("rb") as opened:
        line = opened.readline()
    if line and "op_code" not in json.loads(line):
        raise ValueError("its first line is none of a journal")


def _storage(library: Any, file: Path) -> Any:
    return library.storages.JournalStorage(library.storages.journal.JournalFileBackend(str(file)))


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Turn what goes wrong with the file into one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the journal {file} of a search cannot be read or written ({first_line(error)}); expected a file of an "
            f"earlier search, or none"
        ) from error
