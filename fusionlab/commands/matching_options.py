"""Options that say what is matched and how, and the recipe that they describe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from torch import nn

from fusionlab.advice import AUTO
from fusionlab.cli import RESEARCH
from fusionlab.commands.option_groups import add_fields, add_options, options_of, told
from fusionlab.errors import InputError
from fusionlab.matching.matchers.registry import matchers
from fusionlab.matching.recipe import LEARNED, RECIPES, Recipe, meanings, recipe, with_options
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.models import untie

# Of the refinement; all commands have one seed.
SEED = "seed"
NOTHING = "none"


@dataclass(frozen=True)
class PresetOptions:
    """The options of matching that belong to no matcher.

    Attributes:
        match: preset, which the options below change.
        untie: whether a language model whose output embedding is the input embedding gets one of its own, so that the
            residual stream can be rotated.
    """

    match: str = "paper"
    untie: bool = False


def options() -> dict[type, str]:
    """The options classes that a recipe may have, with the presets that they are of."""
    kinds: dict[type, str] = {}
    for name, found in matchers().items():
        presets = [preset for preset, chosen in RECIPES.items() if type(chosen.options) is found.options]
        kinds[found.options] = "" if "weights" in presets else ", ".join(presets or [name])
    # Those of the presets that most people use first.
    return {**dict(sorted(kinds.items(), key=lambda item: item[1])), RefineOptions: LEARNED}


def add_matching(parser: ArgumentParser, may_be_auto: bool = False) -> None:
    """Add the options that say what is matched and how.

    Args:
        parser: of a command.
        may_be_auto: whether `AUTO` may stand in place of a preset, and does where none is given.
    """
    group = parser.add_argument_group("Matching")
    known = {**({AUTO: "what fusionlab advise says of the models"} if may_be_auto else {}), **meanings()}
    presets = "; ".join(f"{name} ({words})" for name, words in known.items())
    words = f"{told(PresetOptions, 'match')} Presets: {presets}.".replace("`", "")
    default = {"default": AUTO} if may_be_auto else {}
    add_fields(group, PresetOptions, changes={"match": {"help": words, **default}})
    add_options(parser.add_argument_group(RESEARCH), options(), leave_out=(SEED,))


def matching_recipe(arguments: Namespace) -> Recipe:
    """The matching that the arguments describe.

    Raises:
        InputError: a preset or an option that does not exist, or options of a matching where nothing is matched.
    """
    if arguments.match == NOTHING and (changed := _changes(arguments)):
        raise InputError(
            f"--{next(iter(changed))} was given, and nothing is matched (match is {NOTHING}, named or chosen by "
            f"{AUTO}); expected a preset that it changes, such as --match paper"
        )
    return recipe(
        arguments.match,
        seed=arguments.seed if arguments.match == LEARNED else None,
        **{name: getattr(arguments, name) for name in options_of(options(), (SEED,))},
    )


def refuse_options(arguments: Namespace) -> Recipe:
    """Refuse options of a matching that is still to be chosen, before models are read for the choice.

    Returns:
        A matching that has all of them.

    Raises:
        InputError: an option that no preset has, or a value that none takes.
    """
    changes, refused = _changes(arguments), list[InputError]()
    for name in with_options(changes):
        try:
            return recipe(name, **changes)
        except InputError as error:
            refused.append(error)
    raise refused[0]


def matching_name(arguments: Namespace) -> str:
    """The name of the matching: its preset, with what was changed."""
    return ", ".join([arguments.match, *(f"{name} {_said(value)}" for name, value in _changes(arguments).items())])


def _changes(arguments: Namespace) -> dict[str, Any]:
    """The options of the matching that were given."""
    given = {name: getattr(arguments, name) for name in options_of(options(), (SEED,))}
    return {name: value for name, value in given.items() if value is not None}


def untied(models: Mapping[str, nn.Module], arguments: Namespace) -> dict[str, nn.Module]:
    """The models, their embeddings untied if the arguments say so."""
    return {name: untie(model) if arguments.untie else model for name, model in models.items()}


def _said(value: Any) -> str:
    """An option's value as it is written on the command line; what YAML reads as false is the word off."""
    if value is False:
        return "off"
    return ",".join(value) if isinstance(value, list) else str(value)
