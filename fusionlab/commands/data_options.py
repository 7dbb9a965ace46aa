"""Options that say what is measured on, what matching and merging may look at, and the devices for it."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningDataModule
from torch import nn

from fusionlab.data import Digits, Images
from fusionlab.data.preprocessing import preprocessing_of
from fusionlab.errors import InputError
from fusionlab.fusion import Data
from fusionlab.inputs import Inputs
from fusionlab.probes import KINDS
from fusionlab.trainers import make_trainer

DataModules = LightningDataModule | list[LightningDataModule]
# Imported, they can be named without their module.
KNOWN_DATA = (Digits, Images)
SYNTHETIC = "synthetic"
SAMPLES, SYNTHETIC_SAMPLES = 1000, 4000


def add_data(parser: ArgumentParser, required: bool = False) -> None:
    """Add the options of measuring: the data, the points on a line and the devices."""
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
    """Add the options of the devices that everything that passes over data runs on."""
    group = parser.add_argument_group("Devices")
    group.add_argument("--accelerator", type=str, default="auto", help="Of Lightning's Trainer: auto, cpu, gpu.")
    group.add_argument("--devices", type=int | str, default=1, help="Of Lightning's Trainer.")
    group.add_argument("--precision", type=str, default="32-true", help="Of Lightning's Trainer: bf16-mixed, 64-true.")


def add_inputs(parser: ArgumentParser) -> None:
    """Add the options of the inputs that matching, merging and polishing may look at."""
    group = parser.add_argument_group("Inputs of matching and merging")
    group.add_argument(
        "--probes",
        # A name of neither is told as one sentence, see `inputs`: so text comes last.
        type=DataModules | str | None,
        help="What data-driven matching, merging and polishing look at: a data module whose training split is taken "
        f"(labels not needed), synthetic, or a kind of synthetic ones ({', '.join(KINDS)}). The training split of "
        "--data if not given; synthetic ones where there is no data and some are needed.",
    )
    group.add_argument(
        "--samples",
        type=int | None,
        help=f"How many of them for each data module, {SAMPLES} if not given; of synthetic ones {SYNTHETIC_SAMPLES}.",
    )


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
    named, samples = arguments.probes, arguments.samples
    if isinstance(named, str) and named not in (SYNTHETIC, *KINDS):
        raise InputError(f"probes is {named!r}; expected {SYNTHETIC!r}, a data module, or one of {', '.join(KINDS)}")
    if not isinstance(named, str):
        modules = _listed(named) or _listed(getattr(arguments, "data", None))
        found = Inputs.of(modules, len(models), SAMPLES if samples is None else samples, arguments.seed)
        if found is not None or not needed:
            return found
    try:
        normal = preprocessing_of(paths[0])
    except InputError:
        normal = None
    return Inputs.synthetic(
        models,
        SYNTHETIC_SAMPLES if samples is None else samples,
        arguments.seed,
        named if isinstance(named, str) and named != SYNTHETIC else "auto",
        mean=None if normal is None else normal.mean,
        std=None if normal is None else normal.std,
    )


def test_data(arguments: Namespace) -> Data:
    """The test loaders that the arguments name."""
    return Data.of(_listed(arguments.data), _listed(arguments.out_of_domain))


def trainer_options(arguments: Namespace) -> dict[str, Any]:
    """The settings that the Trainer is made with.

    Raises:
        InputError: settings that it refuses; told before any work, also where nothing will run under it.
    """
    settings = {name: getattr(arguments, name) for name in ("accelerator", "devices", "precision")}
    make_trainer(settings, "")
    return settings


def _listed(modules: DataModules | None) -> list[LightningDataModule]:
    if modules is None:
        return []
    return modules if isinstance(modules, list) else [modules]
