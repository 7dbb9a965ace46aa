"""The options of a search."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fusionlab.errors import InputError

Sampler = Literal["tpe", "cmaes"]
# What each sampler is imported from.
PACKAGES = {"tpe": ("optuna",), "cmaes": ("optuna", "cmaes")}


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search of a merge method's settings by scores on validation data.

    Attributes:
        trials: merges that are made and scored, at least 1; the first has the settings as they were given.
        sampler: Optuna's: ``tpe`` (a tree-structured Parzen estimator), or ``cmaes`` (CMA-ES), which suits many numbers
            and leaves words to chance.
        over: what is searched: hyperparameters and ``weights``, each with the lowest and the highest value, a list of
            words, or null for the range that is known; all that have a known range if None.
        layers: groups of neighbouring layers that have values of their own, at least 1, of methods that see no more
            than a parameter at a time; what lies outside of the layers is one more group.
        metric: the metric of the validation data, such as ``accuracy``, ``macro_f1`` or ``loss``; the main one of each
            data set if None.
        journal: file of Optuna's journal that trials are written to as they come, so that a search that was cut goes
            on; of one process alone; none if None.
        seed: of the sampler.

    Raises:
        InputError: a value out of range, or a package that is not installed.
    """

    trials: int = 50
    sampler: Sampler = "tpe"
    over: dict[str, Any] | None = None
    layers: int = 1
    metric: str | None = None
    journal: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("trials", self.trials), ("layers", self.layers)):
            if value < 1:
                raise InputError(f"search {name} is {value}; expected at least 1")
        if self.sampler not in get_args(Sampler):
            raise InputError(f"search sampler is {self.sampler!r}; expected {' or '.join(get_args(Sampler))}")
        if missing := [name for name in PACKAGES[self.sampler] if importlib.util.find_spec(name) is None]:
            raise InputError(
                f"search needs the package {missing[0]!r}, which is not installed; pip install 'fusionlab[search]' "
                f"brings it"
            )
