"""Models of folders as matching sees them before any number is read, and the parts that they are matched by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from fusionlab.atomic import free_space
from fusionlab.checkpoints.sizes import memory
from fusionlab.checkpoints.weightless import Weightless
from fusionlab.matching.options import MEAN, MatchOptions
from fusionlab.matching.parts import Part, of_the_gauge, separated
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.workplace import Workplace
from fusionlab.models import common_blueprint
from fusionlab.printing import size_words
from fusionlab.streaming import StoredModel
from fusionlab.streaming.classes import made_by
from fusionlab.streaming.coupled import coupled_bytes, match_coupled
from fusionlab.streaming.part_files import PartFiles
from fusionlab.streaming.twins import Matched, PartReader, TwinFiles, match_parts
from fusionlab.symmetry import Blueprint


class NotByPartsError(Exception):
    """Models cannot be matched a part at a time; the sentence says why."""


@dataclass(frozen=True)
class Described:
    """A description of all models.

    Attributes:
        made: the models without weights, by name.
        parts: the blueprint in the gauge, and its parts.
        coupled: spaces that are matched meet on one parameter, so that parts are brought into the gauge alone.
        options: what is matched and how.
        device: that parts are matched on, the processor if None; models that lie on the disk are matched by the
            processor.
    """

    made: Mapping[str, Weightless]
    parts: tuple[Blueprint, Sequence[Part]]
    coupled: bool
    options: MatchOptions
    device: torch.device | None = None

    @property
    def model(self) -> nn.Module:
        """The class that they are of, without weights."""
        return next(iter(self.made.values())).model

    @property
    def beside(self) -> int:
        """The bytes that matching takes on the disk while it works."""
        if not self.coupled:
            return 0
        counts = {name: tensor.numel() for name, tensor in self.model.state_dict().items()}
        return coupled_bytes(counts, self.parts[0], self.options)

    def match(
        self,
        models: tuple[PartReader, PartReader],
        files: tuple[TwinFiles, TwinFiles | None],
        scratch: Path,
        advance: Callable[[int], object],
        known: PartFiles | None,
    ) -> Matched:
        """Match a model to an anchor; see `match_parts` and `match_coupled`.

        Args:
            models: the one that is matched, and the anchor.
            files: of the source's twin, and of the anchor's or None where none is written.
            scratch: a folder to make, for numbers on the way; it is removed.
            advance: is told how many bytes have been written since it was called last.
            known: what was found, where a later call may go on with the twins.
        """
        if not self.coupled:
            return match_parts(self.parts, *models, files, advance, known, Workplace(self.device))
        return match_coupled(self.parts, self.options, models, files, scratch, advance, known)


def described(models: Mapping[str, StoredModel], recipe: Recipe) -> Described:
    """The description of all models that are matched a part at a time.

    Args:
        models: by name.
        recipe: how they are matched.

    Raises:
        NotByPartsError: models that are not stored as their class has them, or a matching that looks at whole models.
        InputError: models of different classes or sizes.
    """
    refuse_whole(recipe)
    refuse_timm(models)
    made = made_of(models)
    blueprint = common_blueprint({name: one.model for name, one in made.items()})
    assert isinstance(recipe.options, MatchOptions)
    return Described(made, *parts_of(blueprint, recipe, made), recipe.options)


def leave_to_memory(output: Path, size: int, scratch: int, models: Iterable[StoredModel]) -> None:
    """Leave models to memory where numbers on the way do not fit the disk, and memory holds the models and their twins.

    Args:
        output: that is to be written.
        size: bytes that are written on its disk, those of numbers on the way among them.
        scratch: bytes of numbers on the way.
        models: that are matched.

    Raises:
        NotByPartsError: they do not fit.
    """
    space = free_space(output)
    whole = sum(tensor.size for model in models for tensor in model.tensors.values())
    if scratch and space is not None and space[1] < size and 2 * whole <= memory():
        raise NotByPartsError(
            f"a part at a time takes {size_words(size)} on the disk of {space[0]}, {size_words(scratch)} of it for "
            f"numbers on the way, and {size_words(space[1])} are left there"
        )


def looks_at_parts(recipe: Recipe) -> bool:
    """True if a recipe may be carried out on parts of models, without running them."""
    return type(recipe.options) is MatchOptions and not recipe.needs_inputs and bool(recipe.options.spaces)


def refuse_whole(recipe: Recipe) -> None:
    """Leave a matching that looks at whole models to memory.

    Raises:
        NotByPartsError: it is one.
    """
    if not looks_at_parts(recipe):
        raise NotByPartsError(f"this matching ({recipe}) looks at whole models")


def refuse_mean(count: int, recipes: Iterable[Recipe]) -> None:
    """Leave more than two models that are matched to their mean to memory: pairs with the anchor are not that.

    Raises:
        NotByPartsError: one of the recipes does that.
    """
    for recipe in recipes:
        if count > 2 and getattr(recipe.options, "towards", None) == MEAN:
            raise NotByPartsError("more than two are matched to their mean")


def made_of(models: Mapping[str, StoredModel]) -> dict[str, Weightless]:
    """The models without weights, by name.

    Raises:
        NotByPartsError: one that is not stored as its class has it.
        InputError: an unknown class, or a configuration that it refuses.
    """
    made: dict[str, Weightless] = {}
    for name, model in models.items():
        if (one := made_by(model)) is None:
            raise NotByPartsError(f"the tensors of {name} are stored in another way than its class has them")
        made[name] = one
    return made


def refuse_timm(models: Mapping[str, StoredModel]) -> None:
    """Leave models of timm to memory, as they are not matched a part at a time.

    Raises:
        NotByPartsError: there is one.
    """
    if any(model.format == "timm" for model in models.values()):
        raise NotByPartsError("models of timm are not matched a part at a time")


def parts_of(
    blueprint: Blueprint, recipe: Recipe, made: Mapping[str, Weightless]
) -> tuple[tuple[Blueprint, Sequence[Part]], bool]:
    """The blueprint in the recipe's gauge and the parts that models are matched by, or only brought into the gauge by.

    Args:
        blueprint: of the models.
        recipe: that may be carried out on parts.
        made: the models without weights, by name.

    Returns:
        Both; and whether spaces that are matched meet on one parameter, as the residual stream meets all others.

    Raises:
        NotByPartsError: models that tie different parameters.
    """
    assert isinstance(recipe.options, MatchOptions)
    first, *others = made.values()
    if any(other.names != first.names for other in others):
        raise NotByPartsError("the models tie different parameters")
    together: dict[str, list[str]] = {}
    for model in made.values():
        for name, held in model.names.items():
            together.setdefault(model.groups[held].made[0], []).append(name)
    found = separated(blueprint, recipe.options, together.values())
    if found is not None:
        return found, False
    if not recipe.options.select(blueprint.in_gauge(recipe.gauge)):
        raise NotByPartsError("no space of these models is one that is matched")
    return of_the_gauge(blueprint, recipe.options, together.values()), True
