"""Options that say what is matched and how, and the recipe that they describe."""

from collections.abc import Mapping
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from torch import nn

from fusionlab.matching.recipe import LEARNED, RECIPES, Recipe, recipe
from fusionlab.models import untie

# Options that change a recipe and belong to its name.
OPTIONS = (
    "spaces", "layers", "rescale", "gauge", "start", "relative", "towards", "steps", "learning_rate", "batch_size",
    "target", "mixtures",
)  # fmt: skip


def add_matching(parser: ArgumentParser, default: str = "paper") -> None:
    """Options that say what is matched and how."""
    group = parser.add_argument_group("Matching")
    group.add_argument(
        "--match",
        type=str,
        default=default,
        help=f"Preset: {', '.join(RECIPES)}. `paper` is Algorithm 1 of the paper (a rotation for each head, a "
        "permutation of feed-forward units, sequential rescale); `weights` takes every space that is exact; "
        "`activations` starts it from what the models compute on inputs; `learned` refines it by gradient descent.",
    )
    group.add_argument(
        "--spaces",
        type=str | list[str] | None,
        help="Comma-separated spaces to match instead of the preset's: attention (or attention.qk, attention.vo), "
        "ffn, heads, residual, all. `fusionlab inspect` lists a model's.",
    )
    group.add_argument(
        "--layers", type=str | int | None, help="Layers to match: 3 or 0-5 or 0,2,4 or first:K or last:K."
    )
    group.add_argument("--rescale", type=str | bool | None, help="Scale of a head's sides: off, sequential or joint.")
    group.add_argument(
        "--gauge",
        type=str | list[str] | None,
        help="Canonical forms to bring every model into first: none, or comma-separated folded (norm gains and layer "
        "scales, so that the residual stream of pre-norm models can be rotated), biases (of key, value) and balanced "
        "(heads).",
    )
    group.add_argument(
        "--untie",
        type=bool,
        nargs="?",
        const=True,
        default=False,
        help="Give language models whose output embedding is the input embedding one of its own, so that the residual "
        "stream can be rotated.",
    )
    group.add_argument("--sweeps", type=int | None, help="Most passes over coupled spaces.")
    group.add_argument("--start", type=str | None, help="Where coupled spaces start from: known, annealed or as-is.")
    group.add_argument(
        "--relative",
        type=float | None,
        help="Power of their length, 0 to 1, that parameters are divided by in distances.",
    )
    group.add_argument(
        "--towards", type=str | None, help="Of several models: all to the anchor, or to the mean of all."
    )
    group.add_argument("--steps", type=int | None, help="Of learned: steps of gradient descent.")
    group.add_argument(
        "--learning_rate",
        type=float | None,
        help="Of learned: the first and largest; 0.04 of two models, 0.02 of more.",
    )
    group.add_argument("--batch_size", type=int | None, help="Of learned: inputs in one step; 128 if not given.")
    group.add_argument("--target", type=str | None, help="Of learned: outputs (of the end models) or labels.")
    group.add_argument(
        "--mixtures", type=int | None, help="Of learned: fewer images than this are filled up with mixtures of them."
    )


def matching_recipe(arguments: Namespace) -> Recipe:
    """The matching that the arguments describe."""
    return recipe(
        arguments.match,
        sweeps=arguments.sweeps,
        seed=arguments.seed if arguments.match == LEARNED else None,
        **{option: getattr(arguments, option) for option in OPTIONS},
    )


def matching_name(arguments: Namespace) -> str:
    """What to call the matching: its preset, with what was changed."""
    changes = [f"{option} {_said(value)}" for option in OPTIONS if (value := getattr(arguments, option)) is not None]
    return ", ".join([arguments.match, *changes])


def untied(models: Mapping[str, nn.Module], arguments: Namespace) -> dict[str, nn.Module]:
    """The models, their embeddings untied if the arguments say so."""
    return {name: untie(model) if arguments.untie else model for name, model in models.items()}


def _said(value: Any) -> str:
    """An option's value as it is written on the command line; what YAML reads as false is the word off."""
    if value is False:
        return "off"
    return ",".join(value) if isinstance(value, list) else str(value)
