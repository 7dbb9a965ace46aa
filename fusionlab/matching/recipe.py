"""Recipes: how models are brought into one basis, as one documented choice: a matcher's options, and refinement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from fusionlab.errors import InputError
from fusionlab.inputs import Inputs
from fusionlab.matching.charts import refuse_unmoved
from fusionlab.matching.matchers.registry import matcher_of, matchers
from fusionlab.matching.options import (
    ACTIVATIONS,
    ALL,
    ANNEALED,
    AUTO,
    GRADIENTS,
    MEAN,
    MatchOptions,
    Selection,
    describe,
    given,
)
from fusionlab.matching.permutations import PermutationOptions
from fusionlab.matching.presets import PRESETS
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.statistics.likelihood import predicts
from fusionlab.suggestions import did_you_mean
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.unseen import unseen_entries

# In place of a name, where advice may choose one (`fusionlab.advice`).
CHOSEN = "auto"
LEARNED, GIT_REBASIN, OT_FUSION = "learned", "git-rebasin", "ot-fusion"


@dataclass(frozen=True)
class Recipe:
    """The way models are matched: by the matcher that the options belong to, and then by learning.

    Attributes:
        options: which spaces are matched, in which gauge, and how.
        refine: how the alignment is then learned, or None for not at all.
    """

    options: Selection
    refine: RefineOptions | None = None

    @property
    def matches(self) -> bool:
        """True if anything is matched."""
        return bool(self.options.spaces)

    @property
    def gauge(self) -> tuple[str, ...]:
        """The gauge that every model is brought into before anything is matched; empty where nothing is."""
        return self.options.gauge if self.matches else ()

    @property
    def needs_inputs(self) -> bool:
        """True if the models have to be run."""
        return self.matches and (bool(self.needs) or self.refine is not None)

    @property
    def needs(self) -> tuple[str, ...]:
        """The needs of the matcher beside weights, some of `NEEDS`, from every start."""
        every = [need for one in self.every_start.values() for need in matcher_of(one).needs(one)]
        return tuple(dict.fromkeys(every))

    @property
    def every_start(self) -> dict[str, Selection]:
        """The options of the matcher by the start that they name: its own, then those that are tried beside it.

        Raises:
            InputError: starts are tried of a matcher that has none.
        """
        tried = self.refine.starts if self.refine is not None else ()
        if not isinstance(self.options, MatchOptions):
            if tried:
                raise InputError(f"starts is {tried}, but {matcher_of(self.options).name} has none; expected no starts")
            return {"": self.options}
        own = self.options
        return {start: replace(own, start=start) for start in dict.fromkeys((own.start, *tried))}

    @property
    def draws(self) -> int:
        """The number of draws of inputs that starts look at.

        Raises:
            InputError: several, and no start looks at inputs.
        """
        draws = self.refine.draws if self.refine is not None else 1
        if draws > 1 and not self.needs:
            own = f"start {self.options.start!r}" if isinstance(self.options, MatchOptions) else "this matching"
            raise InputError(
                f"draws is {draws}, but {own} looks at no inputs; expected draws 1, or start {ACTIVATIONS!r} or "
                f"{GRADIENTS!r}"
            )
        return draws

    def refuse(self, blueprint: Blueprint) -> None:
        """Refuse before any work what these models leave nothing of.

        Args:
            blueprint: of the models, in the gauge they come in.

        Raises:
            InputError: spaces or layers that they lack, or nothing that learning could move.
        """
        spaces = self.options.select(blueprint.in_gauge(self.gauge))
        if self.refine is not None and self.matches:
            refuse_unmoved(spaces, self.refine.general)

    def suited_to(self, blueprint: Blueprint, models: Sequence[nn.Module], inputs: Inputs | None = None) -> Recipe:
        """The recipe with one of the other starts in place of `AUTO`.

        A stream that can only be permuted keeps the order that the start gives it, and what the models compute on
        inputs, with gradients, tells that order better than weights do (docs/results/assignments.md).

        Args:
            blueprint: of the models, in the gauge.
            models: what was grown starts as annealed, since what is new in it computes nothing yet.
            inputs: what the models are run on, which shows whether they predict labels: gradients are those of a
                likelihood.
        """
        own = self.options
        if not isinstance(own, MatchOptions) or own.start != AUTO:
            return self
        streams = [space for space in own.select(blueprint) if space.role == Role.RESIDUAL]
        permuted = any(isinstance(space.group, Permutation) for space in streams)
        is_run = self.refine is not None and own.towards != MEAN and not any(map(unseen_entries, models))
        if not permuted or not is_run:
            return replace(self, options=replace(own, start=ANNEALED))
        batch = None if inputs is None else next(iter(inputs.shared))
        has_gradients = batch is not None and all(predicts(model, batch) for model in models)
        return replace(self, options=replace(own, start=GRADIENTS if has_gradients else ACTIVATIONS))

    def __str__(self) -> str:
        """The recipe in words, for a report."""
        if not self.matches:
            return "nothing is matched"
        parts = [f"by {matcher_of(self.options).name}: {describe(self.options)}"]
        if self.refine is not None:
            parts.append(f"then refined: {describe(self.refine)}")
        return "; ".join(parts)


# A preset, a recipe, or several by name, of presets with their options too.
Match = str | Mapping[str, str | Mapping[str, Any] | Recipe] | Recipe

RECIPES: dict[str, Recipe] = {
    **{name: Recipe(options) for name, options in PRESETS.items()},
    ACTIVATIONS: Recipe(replace(PRESETS["weights"], start=ACTIVATIONS)),
    LEARNED: Recipe(replace(PRESETS["weights"], start=AUTO), refine=RefineOptions()),
    GIT_REBASIN: Recipe(PermutationOptions(spaces=(ALL,))),
    OT_FUSION: Recipe(PermutationOptions(spaces=("ffn",), objective="euclidean")),
}


# One line for each recipe: --help, the docs and Python's reader take it from here.
MEANINGS: dict[str, str] = {
    "none": "nothing is matched",
    "paper": "Algorithm 1 of the paper: a rotation for each head, an assignment for each feed-forward layer, "
    "sequential rescale, heads in the order they are in",
    "weights": "every space that is exact for the architecture, in every gauge, by weights alone",
    ACTIVATIONS: "as `weights`, residual streams started from what the models compute on inputs",
    LEARNED: "as `weights`, a stream that can only be permuted started from gradients, then refined by gradient "
    "descent inside the group, on inputs without labels",
    GIT_REBASIN: "permutations of all spaces by weights (Ainsworth et al., 2023)",
    OT_FUSION: "exact transport of feed-forward units (Singh and Jaggi, 2020)",
}


def presets() -> dict[str, Recipe]:
    """Every recipe that has a name: the documented ones, then each other registered matcher with its defaults."""
    return {**RECIPES, **{name: Recipe(one.options()) for name, one in matchers().items() if name not in RECIPES}}


def meanings() -> dict[str, str]:
    """One line for each of `presets`; of a registered matcher the first of its docstring."""
    registered = {name: _first_line(one.function.__doc__) for name, one in matchers().items() if name not in RECIPES}
    return {**MEANINGS, **registered}


def recipe(name: str, **changes: Any) -> Recipe:
    """A documented recipe, some of its options changed; a start that is left open is annealed where nothing is learned.

    Args:
        name: one of `presets`; `MEANINGS` says what each does.
        changes: fields of the matcher's options in any way that `given` knows, and for ``learned`` of `RefineOptions`;
            None keeps the recipe's value.

    Raises:
        InputError: a name, a field or a value that does not exist.
    """
    known = presets()
    if name not in known:
        hint = "" if name == CHOSEN else did_you_mean(name, (*known, CHOSEN))
        raise InputError(
            f"matching preset {name!r} does not exist; expected one of {', '.join(known)}, or {CHOSEN} in fuse{hint}"
        )
    chosen, wanted = known[name], given(changes)
    matching, refining = _fields(chosen)
    for field in wanted:
        if field not in matching | refining:
            hint = " (an option of learned)" if field in {f.name for f in fields(RefineOptions)} else ""
            expected = ", ".join(sorted(matching | refining))
            raise InputError(f"matching by {name} has no option {field!r}{hint}; expected some of {expected}")
    options = replace(chosen.options, **{field: value for field, value in wanted.items() if field in matching})
    if chosen.refine is None:
        if isinstance(options, MatchOptions) and options.start == AUTO:
            options = replace(options, start=ANNEALED)
        return Recipe(options)
    return Recipe(options, replace(chosen.refine, **{f: value for f, value in wanted.items() if f in refining}))


def with_options(names: Iterable[str]) -> list[str]:
    """The presets that match anything and have some options; `LEARNED`, which has most, where none has all."""
    wanted = set(names)
    able = [name for name, one in presets().items() if one.matches and wanted <= set().union(*_fields(one))]
    return able or [LEARNED]


def _fields(chosen: Recipe) -> tuple[set[str], set[str]]:
    """The options of a recipe's matcher and of its refinement, by name."""
    refining = set() if chosen.refine is None else {field.name for field in fields(RefineOptions)}
    return {field.name for field in fields(chosen.options)}, refining


def recipe_of(name: str, options: Mapping[str, Any] | None) -> Recipe:
    """A recipe as a config has it under a name.

    Args:
        name: of a preset, unless the options name one.
        options: changes of the preset, see `recipe`; with ``preset`` of the one that they say.

    Raises:
        InputError: see `recipe`.
    """
    changes = dict(options or {})
    return recipe(changes.pop("preset", name), **changes)


def _first_line(docstring: str | None) -> str:
    """The first line of a docstring as part of a sentence."""
    line = (docstring or "").strip().partition("\n")[0].rstrip(".")
    return f"{line[:1].lower()}{line[1:]}"
