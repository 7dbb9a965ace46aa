"""The content of a grid: end models, groups of them, methods, matchings, seeds; and its cells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from lightning.pytorch import LightningDataModule

from fusionlab.errors import InputError
from fusionlab.evaluation.line import refuse_points
from fusionlab.evaluation.rows import END_MODEL, ENSEMBLE, MULTITASK, NO_MATCHING, REFERENCES, UNMATCHED
from fusionlab.evaluation.wording import file_name
from fusionlab.fusion.plan import Heads
from fusionlab.grid.fingerprints import choices, digest, signature, stamp
from fusionlab.matching.recipe import Recipe
from fusionlab.paths import expanded

Groups = Literal["pairs", "growing", "all"]
Protocol = Literal["corrected", "published"]


@dataclass(frozen=True)
class EndModel:
    """One end model of a grid, given as a checkpoint or trained on the way.

    Attributes:
        data: its own data: merging looks at the training split, the test split is in domain for groups with it.
        ckpt: where its checkpoint is, or its hub id; ``{seed}`` stands for the seed. None for one that is trained on
            the way.
        fit: the settings that `fusionlab fit` trains it with; None for a given checkpoint.
    """

    data: LightningDataModule
    ckpt: str | None = None
    fit: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.ckpt is None) == (self.fit is None):
            raise InputError("an end model of a grid needs one of ckpt and fit; expected exactly one")

    def place(self, name: str, seed: int, folder: Path) -> Path:
        """The path where its checkpoint is (a hub id reads as a path too), or will be.

        Args:
            name: the end model's.
            seed: its seed.
            folder: of those that are trained; other settings of the training are another checkpoint.
        """
        if self.ckpt is not None:
            return expanded(self.ckpt.replace("{seed}", str(seed)))
        return folder / f"{file_name(name)}-seed{seed}-{digest(self.fit, 8)}"


@dataclass(frozen=True)
class Cell:
    """One cell: one model that is made and measured.

    Attributes:
        models: names of the end models in it.
        method: merge method, or ``end model``, ``ensemble``, ``multi-task``.
        matching: the matching's name, ``none``, or ``-`` where there is no merge.
        seed: of the end models.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    seed: int

    @property
    def is_merge(self) -> bool:
        return self.method not in REFERENCES

    @property
    def name(self) -> str:
        """The cell in words, for a reader."""
        words = [f"seed {self.seed}", " + ".join(self.models), self.method]
        return ", ".join([*words, *([] if self.matching == NO_MATCHING else [self.matching])])


@dataclass(frozen=True)
class Grid:
    """All that a grid compares.

    Attributes:
        end_models: the end models by name, in order.
        groups: names of the end models that are merged with each other, a list for each merge. A config may write
            ``pairs`` for every two, ``growing`` for the first two, the first three and so on, or ``all`` for all at
            once.
        methods: merge methods with their hyperparameters, as in ``{regmean: {alpha: 0.5}}``; a config may list those
            that keep their defaults.
        matchings: recipes by name. A config lists presets, or has options over one by name, as in
            ``{ffn only: {preset: paper, spaces: [ffn]}}``. The unmatched merge is always made.
        seeds: of the end models; each is trained, or found, once with each seed.
        out_of_domain: data modules that no end model was trained on.
        ensemble: whether the ensemble of each group is measured, where heads are merged.
        multitask: a model that is trained on the data of all end models together, to compare merges with.
        samples: how many training samples of each end model matching and merging look at; all if None.
        test_samples: how many samples of each test set are measured on, drawn once; all if None.
        points: positions on the line between the models of a pair, 0 for none. Lines are drawn for the first seed, on
            the pair's own test sets; only where heads are merged.
        heads: of models whose tasks differ, see `fusionlab.fusion.FusionPlan`.
        base: checkpoint or hub id of the model that all were fine-tuned from, for methods that need it.
        protocol: ``corrected``, or ``published`` to repeat the faults of the paper's code (docs/reproduce.md).
    """

    end_models: Mapping[str, EndModel]
    groups: tuple[tuple[str, ...], ...]
    methods: Mapping[str, Mapping[str, Any]]
    matchings: Mapping[str, Recipe]
    seeds: tuple[int, ...] = (0,)
    out_of_domain: tuple[LightningDataModule, ...] = ()
    ensemble: bool = True
    multitask: EndModel | None = None
    samples: int | None = 1000
    test_samples: int | None = None
    points: int = 0
    heads: Heads = "merged"
    base: str | None = None
    protocol: Protocol = "corrected"

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("methods is empty; expected at least one merge method")
        for name, count in (("samples", self.samples), ("test_samples", self.test_samples)):
            if count is not None and count < 1:
                raise InputError(f"{name} is {count}; expected at least 1, or null for all")
        refuse_points(self.points, may_be_none=True)
        if self.heads != "merged" and self.points:
            raise InputError(
                f"points is {self.points} and heads is {self.heads!r}, but lines need one head for all; expected "
                f"0, or heads to be merged"
            )
        if self.heads == "own" and (self.out_of_domain or self.multitask):
            odd = "out_of_domain" if self.out_of_domain else "multitask"
            raise InputError(f"heads is 'own', and {odd} has no head of its own; expected none, or other heads")
        # Asked now, before any data are read.
        _ = self._signatures
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds are {list(self.seeds)}; expected at least one, each once")
        if not all(0 <= seed < 2**32 for seed in self.seeds):
            raise InputError(f"seeds are {list(self.seeds)}; expected whole numbers from 0 to {2**32 - 1}")
        if not self.groups:
            raise InputError(f"groups holds none of {len(self.end_models)} end models; expected two end models or more")
        for group in self.groups:
            if unknown := [name for name in group if name not in self.end_models]:
                raise InputError(
                    f"groups names {unknown[0]!r}, which is no end model; expected some of {', '.join(self.end_models)}"
                )
            if len(group) < 2 or len(set(group)) < len(group):
                raise InputError(f"groups holds {list(group)}; expected at least two end models, each once")

    def cells(self) -> list[Cell]:
        """Every cell, seed by seed: end models first, so that what a merge is compared with is there early."""
        found: list[Cell] = []
        for seed in self.seeds:
            used = [name for name in self.end_models if any(name in group for group in self.groups)]
            found += [Cell((name,), END_MODEL, NO_MATCHING, seed) for name in used]
            if self.multitask is not None:
                found.append(Cell(tuple(used), MULTITASK, NO_MATCHING, seed))
            for group in self.groups:
                # Outputs of different heads have no mean; joined ones have rows for labels that a model does not know.
                has_ensemble = self.ensemble and self.heads == "merged"
                found += [Cell(group, ENSEMBLE, NO_MATCHING, seed)] if has_ensemble else []
                for matching, method in itertools.product((UNMATCHED, *self.matchings), self.methods):
                    found.append(Cell(group, method, matching, seed))
        return found

    def fingerprint(self, cell: Cell) -> str:
        """A digest of all settings that a cell's numbers follow from: another one means that it must be made anew."""
        names = list(self.end_models) if cell.method in (END_MODEL, MULTITASK) else cell.models
        outside = [self.signature(module) for module in self.out_of_domain]
        chosen = {name: self.end_models[name] for name in cell.models}
        if cell.method == MULTITASK and self.multitask is not None:
            chosen = {MULTITASK: self.multitask}
        settings: dict[str, Any] = {
            "cell": [cell.models, cell.method, cell.matching, cell.seed],
            "models": [[name, model.fit, stamp(_given(model, cell.seed))] for name, model in chosen.items()],
            "test": [[self.signature(self.end_models[name].data) for name in names], outside, self.test_samples],
            "heads": self.heads,
            "protocol": self.protocol,
        }
        if cell.is_merge:
            recipe = self.matchings.get(cell.matching)
            settings |= {
                "hyperparameters": dict(self.methods[cell.method]),
                # The class of the options says which matcher runs.
                "matching": None if recipe is None else [type(recipe.options).__name__, choices(recipe)],
                "samples": self.samples,
                "base": stamp(self.base),
                "points": self.points if self.draws_lines(cell) else 0,
            }
            if recipe is not None and recipe.gauge:
                # Cells of versions that left the base and the distances before matching out of the gauge are made anew.
                settings["in gauge"] = ["base", "distances"]
        return digest(settings)

    def identity(self, name: str, seed: int) -> str:
        """The identity of an end model: a checkpoint that serves several seeds, or names, is one model.

        Args:
            name: of the end model.
            seed: of the cell it is in.
        """
        return str(self.end_models[name].place(name, seed, Path("trained")))

    def draws_lines(self, cell: Cell) -> bool:
        """True if a cell draws the line between its models: once for each matching, as no method plays a part in it."""
        first = cell.seed == self.seeds[0] and cell.method == next(iter(self.methods))
        return bool(self.points) and first and len(cell.models) == 2

    def signature(self, module: LightningDataModule) -> str:
        """The signature of one of the grid's data modules, as it was before anything was read."""
        return next(known for one, known in self._signatures if one is module)

    @cached_property
    def _signatures(self) -> tuple[tuple[LightningDataModule, str], ...]:
        # Beside the modules themselves, so that a copy in another process finds those of its own.
        modules = [*(end.data for end in self.end_models.values()), *self.out_of_domain]
        return tuple((module, signature(module)) for module in modules)


def make_groups(names: Sequence[str], wanted: str | Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The groups that a word stands for.

    Args:
        names: of the end models, in order.
        wanted: the word, or the groups themselves (see `Grid`).

    Raises:
        InputError: another word.
    """
    if wanted == "pairs":
        return tuple(itertools.combinations(names, 2))
    if wanted == "growing":
        return tuple(tuple(names[:count]) for count in range(2, len(names) + 1))
    if wanted == "all":
        return (tuple(names),)
    if isinstance(wanted, str):
        raise InputError(f"groups is {wanted!r}; expected {', '.join(get_args(Groups))}, or lists of end models")
    return tuple(tuple(group) for group in wanted)


def _given(model: EndModel, seed: int) -> Path | None:
    """The path of an end model's checkpoint; None for one that is trained on the way."""
    return None if model.ckpt is None else model.place("", seed, Path())
