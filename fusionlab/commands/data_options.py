"""Options that say what is measured on, what matching and merging may look at, and the devices for it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningDataModule
from torch import nn

from fusionlab.commands.emulation import tell_emulation
from fusionlab.commands.option_groups import add_fields, told
from fusionlab.errors import InputError
from fusionlab.experiment import Plan
from fusionlab.fusion import Data
from fusionlab.inputs import Inputs
from fusionlab.probes import KINDS, takes_text
from fusionlab.trainers import Devices, make_trainer

DataModules = LightningDataModule | list[LightningDataModule]
# With `fusionlab.data` imported they can be named without their module, see `fusionlab.commands.own_data`.
KNOWN_DATA = ("Digits", "Images")
SYNTHETIC = "synthetic"
SAMPLES, SYNTHETIC_SAMPLES = 1000, 4000


@dataclass(frozen=True)
class MeasuringOptions:
    """The data that models are measured on.

    Attributes:
        data: what is like the end models' training data, and is measured on: a file (CSV, Parquet, JSONL, CoNLL), a
            folder (of images by class, of files) or a hub id, one for all models or one for each. Task, labels and
            tokenizer are the checkpoint's, columns are guessed and said; ``--data.label_column`` and others overrule
            (``--data.help OwnData`` lists them). Or a data module: a class by its name, its settings as
            ``--data.SETTING``.
        out_of_domain: the same for data that is unlike the training data.
    """

    data: DataModules | None = None
    out_of_domain: DataModules | None = None


@dataclass(frozen=True)
class InputOptions:
    """The inputs that data-driven matching, merging and polishing may look at.

    Attributes:
        probes: data as for ``--data``, of which the training split is taken (labels not needed), ``synthetic``, or a
            kind of synthetic inputs. The training split of ``--data`` if not given; synthetic ones where there is no
            data and some are needed.
        samples: how many of them for each data module, 1,000 if not given; of synthetic ones 4,000.
        length: tokens of the longest synthetic text, as far as the models have positions; if not given, 128 of texts
            that the models write, and 32 of random tokens.
    """

    # A name of neither is told as one sentence, see `inputs`: so text comes last.
    probes: DataModules | str | None = None
    samples: int | None = None
    length: int | None = None


def known_data() -> str:
    """A sentence on the data modules that can be named without their module."""
    return f"Known without their module: {', '.join(KNOWN_DATA)}."


def add_data(parser: ArgumentParser, required: bool = False, points: int = Plan.points) -> None:
    """Add the options of measuring: the data, the points on a line and the devices.

    Args:
        parser: of a command.
        required: whether it does nothing without data.
        points: on a line, where nothing is said.
    """
    group = parser.add_argument_group("Measuring")
    words = f"{told(MeasuringOptions, 'data')} {known_data()}"
    needed = {"type": DataModules, "required": True} if required else {}
    add_fields(group, MeasuringOptions, changes={"data": {"help": words, **needed}})
    add_fields(group, Plan, ("points",), {"points": {"default": points}})
    add_devices(parser)


def add_devices(parser: ArgumentParser) -> None:
    """Add the options of the devices that everything that passes over data runs on."""
    add_fields(parser.add_argument_group("Devices"), Devices)


def add_inputs(parser: ArgumentParser) -> None:
    """Add the options of the inputs that matching, merging and polishing may look at."""
    group = parser.add_argument_group("Inputs of matching and merging")
    words = f"{told(InputOptions, 'probes')} Kinds: {', '.join(KINDS)}."
    add_fields(group, InputOptions, changes={"probes": {"help": words}})


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
    if arguments.length is not None and not takes_text(models[0]):
        raise InputError(f"length is {arguments.length}, of texts, but the models take no text; expected it without")
    if isinstance(named, str) and named not in (SYNTHETIC, *KINDS):
        raise InputError(f"probes is {named!r}; expected {SYNTHETIC!r}, a data module, or one of {', '.join(KINDS)}")
    if not isinstance(named, str):
        modules = _listed(named) or _listed(getattr(arguments, "data", None))
        found = Inputs.of(modules, len(models), SAMPLES if samples is None else samples, arguments.seed)
        if found is not None and arguments.length is not None:
            raise InputError(
                f"length is {arguments.length}, of synthetic texts, but inputs are {found.described}; expected it "
                f"without data, or the data's own setting (max_length)"
            )
        if found is not None or not needed:
            return found
    from fusionlab.data.preprocessing import preprocessing_of  # noqa: PLC0415 (its library takes most of a second)

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
        length=arguments.length,
    )


def training_inputs(arguments: Namespace, count: int, samples: int) -> Inputs | None:
    """Inputs out of the training splits of the data that the arguments name; None where there is none.

    Args:
        arguments: parsed.
        count: how many models look at them.
        samples: how many are drawn of each data set.
    """
    return Inputs.of(_listed(arguments.data), count, samples, arguments.seed)


def test_data(arguments: Namespace) -> Data:
    """The test loaders that the arguments name."""
    return Data.of(_listed(arguments.data), _listed(arguments.out_of_domain))


def trainer_options(arguments: Namespace) -> dict[str, Any]:
    """The settings that the Trainer is made with.

    Raises:
        InputError: settings that it refuses; told before any work, also where nothing will run under it.
    """
    settings = {field.name: getattr(arguments, field.name) for field in fields(Devices)}
    tell_emulation(make_trainer(settings, ""))
    return settings


def _listed(modules: DataModules | None) -> list[LightningDataModule]:
    if modules is None:
        return []
    return modules if isinstance(modules, list) else [modules]
