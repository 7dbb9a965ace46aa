"""Options that several commands share, and how they become models, matchings and data."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningDataModule
from torch import nn

from fusionlab import checkpoints, configs
from fusionlab.commands.console import OneLineParser, input_error, silence
from fusionlab.data import Digits, Images
from fusionlab.data.preprocessing import preprocessing_of
from fusionlab.errors import InputError
from fusionlab.experiment import Data
from fusionlab.inputs import Inputs
from fusionlab.matching.options import listed
from fusionlab.matching.recipe import LEARNED, RECIPES, Recipe, recipe
from fusionlab.merging import find_method, methods
from fusionlab.models import untie
from fusionlab.probes import KINDS

DataModules = LightningDataModule | list[LightningDataModule]
# Imported, they can be named without their module.
KNOWN_DATA = (Digits, Images)
SYNTHETIC = "synthetic"
SAMPLES, SYNTHETIC_SAMPLES = 1000, 4000


def make_parser(name: str, description: str) -> ArgumentParser:
    """A parser with the options that every command has."""
    parser = OneLineParser(prog=f"fusionlab {name}", description=description)
    parser.add_argument("--config", action="config", help="YAML with any of these options; a bare name will do.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of everything random.")
    return parser


def parse(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse and build; bare config names are looked up.

    Raises:
        InputError: a wrong option or value.
    """
    silence()
    with _one_sentence():
        return parser.instantiate_classes(parser.parse_args(configs.resolve_arguments(argv)[0]))


def built(parser: ArgumentParser, values: dict[str, Any]) -> Namespace:
    """Parse and build from values in place of arguments.

    Raises:
        InputError: a wrong option or value.
    """
    with _one_sentence():
        return parser.instantiate_classes(parser.parse_object(values))


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Let what a class says about its arguments out of the parser's own exceptions."""
    try:
        yield
    except ValueError as error:
        cause = input_error(error)
        if cause is None or cause is error:
            raise
        raise cause from error


def add_matching(parser: ArgumentParser, default: str = "paper") -> None:
    """Options that say what is matched and how."""
    group = parser.add_argument_group("Matching")
    group.add_argument(
        "--match",
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
    group.add_argument("--target", type=str | None, help="Of learned: outputs (of the end models) or labels.")


def add_merging(parser: ArgumentParser) -> None:
    """Options that say how models are merged."""
    group = parser.add_argument_group("Merging")
    group.add_argument(
        "--method",
        type=str | list[str],
        default="simple",
        help=f"Merge method, or a list of them, of which the first makes the merge that is kept: "
        f"{', '.join(methods())}.",
    )
    group.add_argument("--weights", nargs="+", type=float, help="A weight for each model; equal if not given.")
    group.add_argument(
        "--hyperparameters",
        type=dict[str, Any],
        default={},
        help="Hyperparameters of the method; of several methods by their names.",
    )
    group.add_argument("--base", type=str | None, help="The checkpoint that all were fine-tuned from, where needed.")


def merge_methods(arguments: Namespace) -> dict[str, dict[str, Any]]:
    """The merge methods that the arguments name, with their hyperparameters.

    Raises:
        InputError: a method or hyperparameter that does not exist.
    """
    text = arguments.method
    names = [name.strip() for name in (text.split(",") if isinstance(text, str) else text)]
    given = arguments.hyperparameters
    chosen = {name: dict(given if len(names) == 1 else given.get(name) or {}) for name in names}
    if len(names) > 1 and (odd := [name for name in given if name not in chosen]):
        raise InputError(f"hyperparameters names {odd[0]!r}; expected some of the methods {', '.join(names)}")
    for name, values in chosen.items():
        find_method(name).requires(**values)
    return chosen


def base_model(arguments: Namespace) -> nn.Module | None:
    """The base model that the arguments name."""
    return None if arguments.base is None else checkpoints.load(arguments.base)


def add_anchor(parser: ArgumentParser) -> None:
    """The option that names the anchor among several models."""
    parser.add_argument(
        "--anchor",
        type=int | str,
        default=0,
        help="The model the others are matched to: its place in the list from 0, or nearest (to the mean of all).",
    )


def add_output(parser: ArgumentParser, required: bool = True, default: str | None = None) -> None:
    """Where to write."""
    parser.add_argument("--output", type=str | None, required=required, default=default, help="Folder to write.")
    parser.add_argument(
        "--overwrite", type=bool, nargs="?", const=True, default=False, help="Replace an existing output."
    )


def add_data(parser: ArgumentParser, required: bool = False) -> None:
    """What to measure on, and with what."""
    group = parser.add_argument_group("Measuring")
    group.add_argument(
        "--data",
        type=DataModules if required else DataModules | None,
        required=required,
        help="Data module (or a list of them) whose test split is like the end models' training data: "
        f"{', '.join(known.__name__ for known in KNOWN_DATA)}, or any class; its settings follow as --data.SETTING.",
    )
    group.add_argument(
        "--out_of_domain", type=DataModules | None, help="The same for data that is unlike the training data."
    )
    group.add_argument("--points", type=int, default=11, help="Points on the line between two models.")
    add_devices(parser)


def add_devices(parser: ArgumentParser) -> None:
    """What everything that passes over data runs on."""
    group = parser.add_argument_group("Devices")
    group.add_argument("--accelerator", default="auto", help="Of Lightning's Trainer: auto, cpu, gpu.")
    group.add_argument("--devices", type=int | str, default=1, help="Of Lightning's Trainer.")
    group.add_argument("--precision", type=str, default="32-true", help="Of Lightning's Trainer: bf16-mixed, 64-true.")


def add_inputs(parser: ArgumentParser) -> None:
    """What matching, merging and polishing may look at."""
    group = parser.add_argument_group("Inputs of matching and merging")
    group.add_argument(
        "--probes",
        type=str | DataModules | None,
        help="What data-driven matching, merging and polishing look at: a data module whose training split is taken "
        f"(labels not needed), synthetic, or a kind of synthetic ones ({', '.join(KINDS)}). The training split of "
        "--data if not given; synthetic ones where there is no data and some are needed.",
    )
    group.add_argument(
        "--samples",
        type=int | None,
        default=SAMPLES,
        help=f"How many of them for each data module; of synthetic ones {SYNTHETIC_SAMPLES} if not given.",
    )
    group.add_argument("--statistics", nargs="+", type=str, help="Files of `fusionlab gather`, of any of the models.")


def inputs(
    arguments: Namespace, models: Sequence[nn.Module], paths: Sequence[str], needed: bool = False
) -> Inputs | None:
    """The inputs that the arguments name.

    Args:
        arguments: parsed.
        models: end models.
        paths: of their checkpoints, whose preprocessor says how images are normalised.
        needed: whether synthetic inputs are drawn where nothing is named.

    Returns:
        The inputs; None where nothing is named and none are needed.

    Raises:
        InputError: probes that are neither data nor a kind of probe.
    """
    named = arguments.probes
    if isinstance(named, str) and named not in (SYNTHETIC, *KINDS):
        raise InputError(f"probes is {named!r}; expected {SYNTHETIC!r}, a data module, or one of {', '.join(KINDS)}")
    if not isinstance(named, str):
        modules = _listed(named) or _listed(getattr(arguments, "data", None))
        found = Inputs.of(modules, len(models), arguments.samples, arguments.seed)
        if found is not None or not needed:
            return found
    try:
        normal = preprocessing_of(paths[0])
    except InputError:
        normal = None
    return Inputs.synthetic(
        models,
        SYNTHETIC_SAMPLES if arguments.samples == SAMPLES else arguments.samples,
        arguments.seed,
        named if isinstance(named, str) and named != SYNTHETIC else "auto",
        mean=None if normal is None else normal.mean,
        std=None if normal is None else normal.std,
    )


def matching_recipe(arguments: Namespace) -> Recipe:
    """The matching that the arguments describe."""
    return recipe(
        arguments.match,
        spaces=listed(arguments.spaces),
        layers=None if arguments.layers is None else str(arguments.layers),
        rescale=_given(arguments, "rescale"),
        gauge=listed(arguments.gauge),
        sweeps=arguments.sweeps,
        start=arguments.start,
        relative=arguments.relative,
        towards=arguments.towards,
        steps=arguments.steps,
        target=arguments.target,
        seed=arguments.seed if arguments.match == LEARNED else None,
    )


def matching_name(arguments: Namespace) -> str:
    """What to call the matching: its preset, with what was changed."""
    changes = [
        f"{option} {value if not isinstance(value, list) else ','.join(value)}"
        for option in ("spaces", "layers", "rescale", "gauge", "start", "relative", "towards", "steps", "target")
        if (value := _given(arguments, option)) is not None
    ]
    return ", ".join([arguments.match, *changes])


def untied(models: Mapping[str, nn.Module], arguments: Namespace) -> dict[str, nn.Module]:
    """The models, their embeddings untied if the arguments say so."""
    return {name: untie(model) if arguments.untie else model for name, model in models.items()}


def _given(arguments: Namespace, option: str) -> Any:
    """An option's value; what YAML reads as false is the word off."""
    value = getattr(arguments, option)
    return "off" if value is False else value


def test_data(arguments: Namespace) -> Data:
    """The test loaders that the arguments name."""
    return Data.of(_listed(arguments.data), _listed(arguments.out_of_domain))


def trainer_options(arguments: Namespace) -> dict[str, Any]:
    """What the Trainer is made with."""
    return {name: getattr(arguments, name) for name in ("accelerator", "devices", "precision")}


def read_all(paths: Sequence[str]) -> dict[str, checkpoints.Checkpoint]:
    """Read checkpoints, named by the last part of their paths (more of the path where those agree).

    Raises:
        InputError: a checkpoint that cannot be read, or one named twice.
    """
    names = short_names(paths)
    return {name: checkpoints.read(path) for name, path in zip(names, paths, strict=True)}


def short_names(paths: Sequence[str]) -> list[str]:
    """A different short name for each path.

    Raises:
        InputError: the same path twice.
    """
    places = [Path(path).resolve() if Path(path).exists() else path for path in paths]
    if len(set(places)) < len(places):
        raise InputError(f"the same checkpoint is named twice among {', '.join(paths)}; expected different ones")
    parts = [
        # Without the root, so that a name is always a path inside the folder it is put into.
        Path(os.path.abspath(path)).parts[1:] if isinstance(place, Path) else tuple(path.split("/"))
        for path, place in zip(paths, places, strict=True)
    ]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError(f"the same checkpoint is named twice among {', '.join(paths)}; expected different ones")


def _listed(modules: DataModules | None) -> list[LightningDataModule]:
    if modules is None:
        return []
    return modules if isinstance(modules, list) else [modules]
