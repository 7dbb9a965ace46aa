"""Lightning's command line as fusionlab's commands run it: bad options are one sentence, checkpoints are durable."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import (
    ModelCheckpoint,
    ModelSummary,
    OnExceptionCheckpoint,
    ProgressBar,
    RichModelSummary,
)
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from fusionlab import printing
from fusionlab.checkpoints.lightning_file import read_archive
from fusionlab.commands.console import OneLineParser, readable
from fusionlab.commands.emulation import tell_emulation
from fusionlab.commands.logs import OwnFolder
from fusionlab.commands.option_groups import told
from fusionlab.commands.parsing import SharedOptions, one_sentence, refuse_seed
from fusionlab.errors import InputError, first_line
from fusionlab.paths import expanded
from fusionlab.sentences import sentence
from fusionlab.tasks.durable import DurableCheckpointIO
from fusionlab.trainers import refuse_many_devices


class OneLineLightningParser(OneLineParser, LightningArgumentParser):
    """Lightning's parser with errors of one line."""


class LoggedConfig(SaveConfigCallback):
    """Saves the config beside the logs; without a logger nowhere, where Lightning overwrites the working folder's."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save the config if the run has a logger."""
        if trainer.loggers:
            super().setup(trainer, pl_module, stage)


class Summary(RichModelSummary):
    """Lightning's summary of a model, printed where progress is shown."""

    @staticmethod
    def summarize(*arguments: Any, **options: Any) -> None:
        """Print the table; its columns are Lightning's."""
        if not printing.progress().quiet:
            with redirect_stdout(sys.stderr):
                RichModelSummary.summarize(*arguments, **options)


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn what Lightning and its parser refuse into one sentence."""
    try:
        with one_sentence():
            yield
    except MisconfigurationException as error:
        raise InputError(first_line(error)) from error


def common_options(name: str, **trainer: Any) -> dict[str, Any]:
    """Arguments of Lightning's command line that all commands give it.

    Args:
        name: of the logs.
        trainer: further defaults of the Trainer.
    """
    logger = {
        "class_path": "fusionlab.commands.logs.OwnFolder",
        "init_args": {"save_dir": "logs", "name": name},
    }
    return {
        "seed_everything_default": 0,
        "parser_class": OneLineLightningParser,
        "save_config_callback": LoggedConfig,
        "save_config_kwargs": {"overwrite": True},
        "auto_configure_optimizers": False,
        "trainer_defaults": {"logger": logger, **trainer},
    }


def checked_checkpoint(path: str) -> str:
    """A Lightning checkpoint's path once it was read the safe way, so that a bad one is one sentence.

    Args:
        path: a file, or a word that Lightning knows, such as ``last``.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if path in ("best", "last", "hpc", "registry"):
        return path
    location = expanded(path)
    if not location.is_file():
        raise InputError(f"--ckpt_path {path}: there is no such file")
    read_archive(location)
    return str(location)


def refuse_no_last(trainer: Trainer) -> None:
    """Refuse to go on from the last checkpoint where there is none, which Lightning takes for a start from scratch.

    Args:
        trainer: whose callbacks keep checkpoints.

    Raises:
        InputError: names one of an earlier run with the same logs, if there is one.
    """
    kept = [one for one in trainer.checkpoint_callbacks if isinstance(one, ModelCheckpoint)]
    new = next((logger for logger in trainer.loggers if isinstance(logger, OwnFolder) and logger.is_new), None)
    # Lightning has no public way. A folder that is still to be made holds none, and is not made by this.
    if any(one._find_last_checkpoints(trainer) for one in kept if one.dirpath or new is None):
        return
    if any(isinstance(one, OnExceptionCheckpoint) and Path(one.ckpt_path).exists() for one in trainer.callbacks):  # type: ignore[attr-defined]
        return
    earlier = [] if new is None else [*Path(new.root_dir).expanduser().glob("*/checkpoints/*.ckpt")]
    such = f", such as {max(earlier, key=lambda path: path.stat().st_mtime)}" if earlier else ""
    raise InputError(
        f"--ckpt_path last: there is no last checkpoint where this run keeps its own; expected the path of a file{such}"
    )


@contextmanager
def misfits_told(path: str | None) -> Iterator[None]:
    """Refuse in one sentence to resume from a checkpoint of another run.

    Lightning takes its entries for what it wrote itself; where they are missing, of other types or of another model,
    it fails in any way while it restores them.

    Args:
        path: of the checkpoint, or a word that Lightning knows; None where nothing is restored.

    Raises:
        InputError: in place of an exception from within Lightning's restoring that has no sentence of its own.
    """
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        restoring = any(Path(frame.filename).name == "checkpoint_connector.py" for frame in frames)
        if path is None or not restoring or sentence(error) is not None:
            raise
        raise InputError(
            f"{path}: the fit cannot be resumed from it ({type(error).__name__}: {first_line(error)}); expected a "
            f"checkpoint of Lightning's, of the same model"
        ) from error


class SafeCLI(LightningCLI):
    """Lightning's command line, with errors that name what is wrong."""

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the seed, under Lightning's name and a short one."""
        parser.add_argument(
            "--seed_everything",
            "--seed",
            type=bool | int,
            default=self.seed_everything_default,
            help=f"{told(SharedOptions, 'seed')} True for a random one.",
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse; exceptions of the parser become one sentence."""
        with readable():
            super().parse_arguments(parser, args)
        seed = self.config.get(self.config.get("subcommand") or "", self.config).get("seed_everything")
        refuse_seed(None if isinstance(seed, bool) else seed)

    def instantiate_trainer(self, **keywords: Any) -> Trainer:
        """Make the Trainer; a device or precision that it refuses is one sentence."""
        given = self._get(self.config_init, "trainer")
        if not hasattr(given, "keys"):
            raise InputError(f"trainer is {given!r}; expected options of Lightning's Trainer by name")
        refuse_many_devices(self._get(self.config_init, "trainer.devices"))
        if root := self._get(self.config_init, "trainer.default_root_dir"):
            keywords["default_root_dir"] = str(expanded(root))
        plugins = self._get(self.config_init, "trainer.plugins") or []
        plugins = plugins if isinstance(plugins, list) else [plugins]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            keywords["plugins"] = [*plugins, DurableCheckpointIO()]
        callbacks = self._get(self.config_init, "trainer.callbacks") or []
        callbacks = keywords.get("callbacks", callbacks if isinstance(callbacks, list) else [callbacks])
        # The bar is a default of these commands; Lightning refuses one beside another, or beside the wish for none.
        bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
        wants_none = self._get(self.config_init, "trainer.enable_progress_bar") is False
        if wants_none:
            callbacks = [callback for callback in callbacks if callback not in bars]
        if (wants_none or bars) and "callbacks" in self.trainer_defaults:
            kept = [one for one in self.trainer_defaults["callbacks"] if not isinstance(one, ProgressBar)]
            self.trainer_defaults = {**self.trainer_defaults, "callbacks": kept}
        if self._get(self.config_init, "trainer.enable_model_summary") is not False:
            # Lightning adds one of its own, which prints where results go, where there is none.
            callbacks = [*callbacks, *([] if any(isinstance(one, ModelSummary) for one in callbacks) else [Summary()])]
        keywords["callbacks"] = callbacks
        try:
            trainer = super().instantiate_trainer(**keywords)
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError, MisconfigurationException) as error:
            raise InputError(f"trainer: {first_line(error)}") from error
        tell_emulation(trainer)
        return trainer
