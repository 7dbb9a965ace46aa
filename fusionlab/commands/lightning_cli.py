"""Lightning's command line as fusionlab's commands run it: bad options are one sentence, checkpoints are durable."""

from typing import Any

from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from fusionlab.commands.console import readable
from fusionlab.commands.parsing import refuse_seed
from fusionlab.errors import InputError, first_line
from fusionlab.paths import expanded
from fusionlab.tasks.durable import DurableCheckpointIO


class SafeCLI(LightningCLI):
    """Lightning's command line, with errors that name what is wrong."""

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the seed, under Lightning's name and a short one."""
        parser.add_argument(
            "--seed_everything",
            "--seed",
            type=bool | int,
            default=self.seed_everything_default,
            help="Seed of everything random; true for a random one.",
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse; whatever the parser raises on options that it cannot read is one sentence."""
        with readable():
            super().parse_arguments(parser, args)
        seed = self.config.get(self.config.get("subcommand") or "", self.config).get("seed_everything")
        refuse_seed(None if isinstance(seed, bool) else seed)

    def instantiate_trainer(self, **keywords: Any) -> Trainer:
        """Make the Trainer; a device or precision that it refuses is one sentence."""
        given = self._get(self.config_init, "trainer")
        if given is not None and not hasattr(given, "keys"):
            raise InputError(f"trainer is {given!r}; expected options of Lightning's Trainer by name")
        if root := self._get(self.config_init, "trainer.default_root_dir"):
            keywords["default_root_dir"] = str(expanded(root))
        plugins = self._get(self.config_init, "trainer.plugins") or []
        plugins = plugins if isinstance(plugins, list) else [plugins]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            keywords["plugins"] = [*plugins, DurableCheckpointIO()]
        # The bar is a default of these commands; Lightning refuses one beside the wish for none.
        callbacks = self._get(self.config_init, "trainer.callbacks") or []
        callbacks = keywords.get("callbacks", callbacks if isinstance(callbacks, list) else [callbacks])
        if self._get(self.config_init, "trainer.enable_progress_bar") is False:
            callbacks = [callback for callback in callbacks if not isinstance(callback, ProgressBar)]
        keywords["callbacks"] = callbacks
        try:
            return super().instantiate_trainer(**keywords)
        except InputError:
            raise
        except (ValueError, MisconfigurationException) as error:
            raise InputError(f"trainer: {first_line(error)}") from error
