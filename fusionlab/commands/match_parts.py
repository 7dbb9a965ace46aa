"""Models of folders as matching sees them before any number is read, and the parts that they are matched by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from fusionlab.checkpoints.weightless import Weightless, weightless
from fusionlab.growing import differ_in_size
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.parts import Part, separated
from fusionlab.matching.recipe import Recipe
from fusionlab.models import common_blueprint
from fusionlab.streaming import StoredModel
from fusionlab.symmetry import Blueprint


class NotByPartsError(Exception):
    """Models cannot be matched a part at a time; the sentence says why."""


@dataclass(frozen=True)
class Described:
    """A description of all models.

    Attributes:
        made: the models without weights, by name.
        parts: the blueprint in the gauge, and its parts.
    """

    made: Mapping[str, Weightless]
    parts: tuple[Blueprint, Sequence[Part]]

    @property
    def model(self) -> nn.Module:
        """The class that they are of, without weights."""
        return next(iter(self.made.values())).model


def described(models: Mapping[str, StoredModel], recipe: Recipe) -> Described:
    """The description of all models that are matched a part at a time.

    Args:
        models: by name.
        recipe: how they are matched.

    Raises:
        NotByPartsError: models that are not stored as their class has them, that are of different sizes, or a matching
            that couples its spaces.
        InputError: models of different classes.
    """
    if not looks_at_parts(recipe):
        raise NotByPartsError(f"this matching ({recipe}) looks at whole models")
    made = made_of(models)
    if differ_in_size([one.model for one in made.values()]):
        raise NotByPartsError("the models are of different sizes, so that some are grown first")
    blueprint = common_blueprint({name: one.model for name, one in made.items()})
    return Described(made, parts_of(blueprint, recipe, made))


def looks_at_parts(recipe: Recipe) -> bool:
    """True if a recipe may be carried out on parts of models, without running them."""
    return type(recipe.options) is MatchOptions and not recipe.needs_inputs and bool(recipe.options.spaces)


def made_of(models: Mapping[str, StoredModel]) -> dict[str, Weightless]:
    """The models without weights, by name.

    Raises:
        NotByPartsError: one that is not stored as its class has it.
        InputError: an unknown class, or a configuration that it refuses.
    """
    made: dict[str, Weightless] = {}
    for name, model in models.items():
        shapes = {tensor: stored.shape for tensor, stored in model.tensors.items()}
        one = weightless(model.config, model.location, shapes) if model.format == "transformers" else None
        if one is None:
            raise NotByPartsError(f"the tensors of {name} are stored in another way than its class has them")
        made[name] = one
    return made


def parts_of(blueprint: Blueprint, recipe: Recipe, made: Mapping[str, Weightless]) -> tuple[Blueprint, Sequence[Part]]:
    """The blueprint in the recipe's gauge, and the parts that models are matched by.

    Args:
        blueprint: of the models.
        recipe: that may be carried out on parts.
        made: the models without weights, by name.

    Raises:
        NotByPartsError: models that tie different parameters, or a matching that couples its spaces.
    """
    assert isinstance(recipe.options, MatchOptions)
    first, *others = made.values()
    if any(other.names != first.names for other in others):
        raise NotByPartsError("the models tie different parameters")
    together: dict[str, list[str]] = {}
    for model in made.values():
        for name, held in model.names.items():
            together.setdefault(model.groups[held].made[0], []).append(name)
    if (found := separated(blueprint, recipe.options, together.values())) is None:
        raise NotByPartsError("spaces that are matched meet on one parameter, as the residual stream meets all others")
    return found
