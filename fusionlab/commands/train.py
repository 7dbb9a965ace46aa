"""``fusionlab fit``, ``validate``, ``test`` and ``predict``: one model, trained or evaluated by Lightning's CLI."""

import csv
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.utilities.model_helpers import is_overridden
from rich.table import Table

from fusionlab import configs, printing
from fusionlab.atomic import atomic_file, require_space
from fusionlab.commands.console import silence, tell
from fusionlab.commands.lightning_cli import (
    SafeCLI,
    checked_checkpoint,
    common_options,
    misfits_told,
    refusals_told,
    refuse_no_last,
)
from fusionlab.data.contract import described
from fusionlab.data.overlap import overlap
from fusionlab.data.tables import FILE_BUILDERS
from fusionlab.dtypes import stored_size
from fusionlab.errors import InputError
from fusionlab.inputs import gives_batches
from fusionlab.sentences import naming
from fusionlab.tasks import ExportCheckpoint, FineTuning
from fusionlab.tasks.export import best_weights
from fusionlab.tasks.fine_tuning import SCORE
from fusionlab.threads import failures_raised

SUBCOMMANDS = ("fit", "validate", "test", "predict")
_DESCRIPTIONS = {
    "fit": "Fine-tune an end model, then test it.",
    "validate": "Measure a model on the validation data.",
    "test": "Measure a model on the test data.",
    "predict": "Write what a model predicts as a CSV file.",
}

# What a model and its data must have to be measured.
_NEEDED = {"validate": ("validation_step", "val_dataloader"), "test": ("test_step", "test_dataloader")}
_COUNTED_TWICE = "on several devices some samples count twice, so that all devices have as many"


class TrainingCLI(SafeCLI):
    """Lightning's command line with fusionlab's defaults, and a table at the end."""

    def _parse_ckpt_path(self) -> None:
        """Read a checkpoint the safe way before Lightning does, so that a bad one is one sentence."""
        options = self.config[self.config.subcommand]
        if path := options.get("ckpt_path"):
            options["ckpt_path"], options["weights_only"] = checked_checkpoint(path), True
        super()._parse_ckpt_path()

    def _run_subcommand(self, subcommand: str) -> None:
        """Run it; a disk that fills under the logs is told of their folder."""
        given = self.config[subcommand].get("ckpt_path")
        options = self.config_init[subcommand]
        if subcommand != "fit" and not given:
            self._tell_of_fresh(subcommand)
        is_told = subcommand in ("validate", "test") and options.get("verbose")
        if is_told:
            # Lightning prints where its bars are, which is not where results go.
            options["verbose"] = False
        place = naming(lambda: self.trainer.log_dir or self.trainer.default_root_dir)
        with place, failures_raised(), misfits_told(given):
            if given == "last":
                refuse_no_last(self.trainer)
            super()._run_subcommand(subcommand)
        if is_told and self.trainer.is_global_zero:
            printing.results().print(_results(f"fusionlab {subcommand}", _metrics(self.trainer)))

    def _tell_of_fresh(self, subcommand: str) -> None:
        """Say that nothing trained was named, where the model is made from a config."""
        named = self._get(self.config, "model.init_args.model")
        if isinstance(named, Mapping | Namespace) and self.trainer.is_global_zero:
            tell(
                f"fusionlab {subcommand}: the model is a new one with random weights, as no trained ones are named; "
                f"--ckpt_path FILE.ckpt or --model.model FOLDER names some"
            )

    def before_fit(self) -> None:
        """Refuse a disk that has no space for one of Lightning's checkpoints: weights, and Adam's two averages of each.

        Raises:
            InputError: names the space needed and the space there is.
        """
        kept = [one for one in self.trainer.checkpoint_callbacks if isinstance(one, ModelCheckpoint)]
        if kept:
            size = stored_size(self.model)
            folder = Path(kept[0].dirpath or self.trainer.log_dir or self.trainer.default_root_dir)
            require_space(folder / "checkpoints", size if kept[0].save_weights_only else 3 * size)

    def after_fit(self) -> None:
        """Validate and test the best (or last) weights, and say where everything went."""
        if getattr(self.trainer, "fast_dev_run", False):
            return
        # All processes ask for the place of the logs, which they tell one another.
        outputs = _outputs(self.trainer)
        if not self.trainer.is_global_zero:
            return
        best = best_weights(self.trainer)
        if self.trainer.world_size > 1:
            rows: dict[str, float] = {}
            tell(f"the fit was not tested: {_COUNTED_TWICE}; fusionlab test with --trainer.devices 1 does it")
        else:
            # Measured again, as the last validation may have been of weights before the last ones.
            rows = {name: value for name, value in self._measured("validate", best).items() if name != SCORE}
            rows |= self._measured("test", best)
        table = _results("fusionlab fit", rows)
        if self.datamodule is not None and (seen := _overlap(self.datamodule)):
            table.add_row("test texts seen in training", seen)
        for name, path in outputs.items():
            table.add_row(name, path)
        printing.results().print(table)

    def _measured(self, stage: str, best: str | None) -> dict[str, float]:
        """Metrics of the weights that were exported; nothing without such data, or where the model measures none."""
        data, (step, loader) = self.datamodule, _NEEDED[stage]
        if data is None or not (is_overridden(step, self.model) and is_overridden(loader, data)):
            return {}
        # A data module may make the sets of each stage when that is set up.
        data.setup(stage)
        if not gives_batches(getattr(data, loader)()):
            return {}
        loggers = self.trainer.loggers
        if stage == "validate":
            # The epoch stands in the logs already; measured again it is no further point of the curve.
            self.trainer.loggers = []
        measure = getattr(self.trainer, stage)
        metrics = measure(
            self.model, datamodule=data, verbose=False, ckpt_path=best, weights_only=True if best else None
        )
        self.trainer.loggers = loggers
        return {name: float(value) for loader in metrics for name, value in loader.items()}

    def before_validate(self) -> None:
        """Say that scores of several devices are not exact."""
        self._tell_of_padding()

    def before_test(self) -> None:
        """Say that scores of several devices are not exact."""
        self._tell_of_padding()

    def _tell_of_padding(self) -> None:
        is_shared = self.trainer.world_size > 1 and self._get(self.config_init, "trainer.use_distributed_sampler")
        if is_shared and self.trainer.is_global_zero:
            tell(f"the scores are not exact: {_COUNTED_TWICE}; --trainer.devices 1 counts each once")

    def before_predict(self) -> None:
        """Refuse several devices, each of which would write its own share into the one file.

        Raises:
            InputError: there are several.
        """
        if self.trainer.world_size > 1:
            raise InputError(
                f"predict would run on {self.trainer.world_size} devices, and one writes the file; expected one "
                f"device: --trainer.devices 1"
            )

    def predict(self, model: LightningModule, **keywords: Any) -> None:
        """Predict, and write the predictions beside the logs; those of several loaders one after another."""
        batches = self.trainer.predict(model, **keywords)
        if batches and len(self.trainer.num_predict_batches) > 1:
            batches = list(itertools.chain.from_iterable(batches))
        if not batches:
            raise InputError("there was nothing to predict: the data has no predict or test split")
        if not isinstance(model, FineTuning):
            return
        if model.class_names is None:
            names = described(self.datamodule).class_names
            model.class_names = None if names is None else list(names)
        path = Path(self.trainer.log_dir or ".") / "predictions.csv"
        rows = _write(path, model.prediction_rows(batches))
        printing.results().print(f"{rows} rows of predictions: {path}", highlight=False, soft_wrap=True)


def run(subcommand: str, argv: Sequence[str]) -> None:
    """Run one of Lightning's subcommands.

    Args:
        subcommand: ``fit``, ``validate``, ``test`` or ``predict``.
        argv: the arguments after it. A ``--config`` may be a bare name (see `fusionlab.configs.resolve`).

    Raises:
        InputError: a wrong key or value, a file that is missing or damaged, an output that exists.
    """
    _refuse_files(argv)
    argv, name = configs.resolve_arguments(argv)
    silence()
    with refusals_told():
        _command_line(subcommand, argv, name)


def _refuse_files(argv: Sequence[str]) -> None:
    """Refuse a table in place of a data module, which Lightning's parser would read as a config.

    Raises:
        InputError: names a data module that reads it.
    """
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--data=") else [word])]
    for option, place in itertools.pairwise(words):
        if option == "--data" and Path(place).suffix in {*FILE_BUILDERS} - {".json"}:
            raise InputError(
                f"--data {place} is a file, and here no model says what it holds; expected a data module, such as "
                f"--data fusionlab.data.TextClassification --data.path {place}, with --data.tokenizer and "
                f"--data.label_column"
            )


def _command_line(subcommand: str, argv: Sequence[str], name: str) -> TrainingCLI:
    return TrainingCLI(
        LightningModule,
        subclass_mode_model=True,
        parser_kwargs={"prog": "fusionlab"}
        | {command: {"description": text} for command, text in _DESCRIPTIONS.items()},
        **common_options(name, callbacks=[RichProgressBar(console_kwargs=printing.progress_options())]),
        args=[subcommand, *argv],
    )


def _results(title: str, values: Mapping[str, float]) -> Table:
    """A table of metrics."""
    table = Table(title=title)
    table.add_column("")
    table.add_column("value", overflow="fold")
    for name, value in values.items():
        table.add_row(name, f"{value:.4f}")
    return table


def _metrics(trainer: Trainer) -> dict[str, float]:
    """The metrics that the last validation logged; the main metric is there under its own name already."""
    shown = {name: value for name, value in trainer.callback_metrics.items() if not name.startswith("train/")}
    return {name: float(value) for name, value in shown.items() if name != SCORE}


def _outputs(trainer: Trainer) -> dict[str, str]:
    """The files and folders that a fit wrote, by what they are."""
    outputs: dict[str, str] = {}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, ExportCheckpoint) and callback.written:
            outputs["checkpoint"] = str(callback.output)
    lightning = best_weights(trainer) or getattr(trainer.checkpoint_callback, "best_model_path", "")
    if lightning:
        path = Path(lightning)
        outputs["Lightning file"] = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    if trainer.loggers and trainer.log_dir:
        outputs["logs"] = trainer.log_dir
    return outputs


def _overlap(module: LightningDataModule) -> str:
    """The number and share of test texts that were trained on too; empty for data that are no texts."""
    data = described(module)
    found = overlap(data.texts("train"), data.texts("test"))
    return f"{found.count} of {found.total} ({100 * found.share:.1f} %)" if found.total else ""


def _write(path: Path, rows: Iterable[Sequence[Any]]) -> int:
    """Write a table whose first row is the header; returns the number of the others."""
    count = -1
    with atomic_file(path, overwrite=True) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for row in rows:
            writer.writerow(row)
            count += 1
    return count
