"""``fusionlab fuse`` from a config of Lightning's shape: a FusionModule, a data module and a Trainer."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from fusionlab import configs, printing
from fusionlab.advice import AUTO, advice_on, read_weights
from fusionlab.atomic import refuse_existing, require_space
from fusionlab.checkpoints.card import merge_card
from fusionlab.commands import merging_options, own_data, parsing
from fusionlab.commands.console import silence, tell
from fusionlab.commands.differences import tell_differences
from fusionlab.commands.fuse_output import advised_note, index_of_fusion, size_of_merge, write_fusion
from fusionlab.commands.grow import as_grown
from fusionlab.commands.lightning_cli import (
    SafeCLI,
    checked_checkpoint,
    common_options,
    misfits_told,
    refusals_told,
    refuse_no_last,
)
from fusionlab.commands.lost_inputs import refuse_lost
from fusionlab.commands.option_groups import add_fields
from fusionlab.commands.plain_folder import library_of
from fusionlab.commands.pushing import push_output, refuse_unpushable
from fusionlab.commands.repeat import repeat_config
from fusionlab.commands.sentence_modules import modules_of_fusion
from fusionlab.data import OwnData
from fusionlab.dtypes import common_types
from fusionlab.evaluation.card_table import card_table
from fusionlab.evaluation.plots import plots
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.tensorboard import write_tensorboard
from fusionlab.experiment import REPORT_BYTES, SHOWN_EXAMPLES, Plan, refuse_no_plane, results_of
from fusionlab.fusion import Data, FusionData, FusionModule, FusionPlan
from fusionlab.fusion.misfit import refuse_misfit
from fusionlab.growing import described
from fusionlab.paths import expanded
from fusionlab.sentences import naming
from fusionlab.sharding_strategy import refuse_sharding, strategy_of
from fusionlab.statistics.files import load
from fusionlab.threads import failures_raised
from fusionlab.trainers import refuse_rounding

SECTIONS = ("model", "data", "trainer")
# The environment's variable in which Lightning's command line keeps the seed that everything follows from.
SEEDED = "PL_GLOBAL_SEED"
# Steps between two checkpoints of a descent, which may be cut at any time.
CHECKPOINT_STEPS = 50


@dataclass(frozen=True)
class ResumeOptions:
    """Going on with a run that was cut.

    Attributes:
        ckpt_path: checkpoint of a fit to go on from; ``last`` for the last one written.
    """

    ckpt_path: str | None = None


def fusion(
    models: list[str] | dict[str, str],
    match: str | dict[str, str | dict[str, Any]] = AUTO,
    methods: str | dict[str, dict[str, Any]] = "simple",
    samples: int | None = 1000,
    statistics: list[str] | None = None,
    base: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> FusionModule:
    """A fusion of checkpoints.

    Args:
        models: end models: folders, .ckpt files or hub ids, or names for them.
        match: a preset, or several by the name to show them under, with their options where they differ from it
            (``{learned: {steps: 100}}``); ``auto`` for what advice names.
        methods: a merge method, or several with their hyperparameters; the first makes the merge that is kept.
        samples: training samples of each data module that matching and merging see; null for all.
        statistics: files of `fusionlab gather`, of any of the models.
        base: the checkpoint that all were fine-tuned from, where a method needs it.
        seed: of anything random; that of ``--seed`` if null.
        options: fields of `FusionPlan`.
    """
    options["seed"] = int(os.environ.get(SEEDED, FusionPlan.seed)) if seed is None else seed
    return FusionModule(
        models,
        match,
        methods,
        samples=samples,
        statistics=[load(path) for path in statistics or []],
        base=base,
        **options,
    )


class FuseCLI(SafeCLI):
    """Lightning's command line around one fit and one test of a fusion."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add where to write, how far to draw lines, and which checkpoint to go on from."""
        parsing.add_output(parser)
        parsing.add_json(parser)
        parsing.add_push(parser)
        shown = {"examples": {"default": SHOWN_EXAMPLES}}
        add_fields(parser, Plan, ("points", "examples", "plane"), shown)
        add_fields(parser, ResumeOptions)

    def instantiate_trainer(self, **keywords: Any) -> Trainer:
        """Make the Trainer; checkpoints of every start are in one place, where the next start finds them.

        Raises:
            InputError: a strategy that spreads one model over processes, or a precision that rounds the models.
        """
        refuse_rounding(self._get(self.config_init, "trainer.precision"))
        # Lightning would ask for a GPU first.
        strategy = self._get(self.config_init, "trainer.strategy")
        refuse_sharding(strategy)
        keywords["strategy"] = strategy_of(strategy)
        callbacks = self._get(self.config_init, "trainer.callbacks") or []
        callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
        logger = self._get(self.config_init, "trainer.logger")
        is_wanted = self._get(self.config_init, "trainer.enable_checkpointing") is not False
        if is_wanted and not any(isinstance(callback, ModelCheckpoint) for callback in callbacks):
            folder = Path(logger.root_dir if isinstance(logger, TensorBoardLogger) else "logs") / "checkpoints"
            kept = ModelCheckpoint(folder, save_last=True, every_n_train_steps=CHECKPOINT_STEPS)
            keywords["callbacks"] = [*callbacks, kept]
        return super().instantiate_trainer(**keywords)


def run(argv: Sequence[str]) -> None:
    """Fit and test a fusion, and write what ``fusionlab fuse`` writes.

    Raises:
        InputError: a wrong key or value, models or data that do not fit, an output that exists.
    """
    arguments, name = configs.resolve_arguments(own_data.written_out(argv, ("data",)))
    silence()
    with refusals_told():
        cli = FuseCLI(
            fusion,
            LightningDataModule,
            subclass_mode_data=True,
            run=False,
            parser_kwargs={"prog": "fusionlab fuse"},
            args=arguments,
            **common_options(name, enable_model_summary=False),
        )
        _fuse(cli, shlex.join(["fusionlab", "fuse", *argv]), repeat_config(cli.parser, arguments))


def _run(trainer: Trainer, module: FusionModule, data: LightningDataModule | None, ckpt_path: str | None) -> None:
    """Fit, from a checkpoint where one is named, and test where there are data."""
    ckpt = ckpt_path and checked_checkpoint(ckpt_path)
    place = naming(lambda: trainer.log_dir or trainer.default_root_dir)
    with place, failures_raised(), misfits_told(ckpt_path):
        if ckpt_path == "last":
            refuse_no_last(trainer)
        trainer.fit(module, datamodule=data, ckpt_path=ckpt, weights_only=True if ckpt else None)
        if data is not None:
            trainer.test(module, datamodule=data, verbose=False)


def _fuse(cli: FuseCLI, command: str, repeat: str) -> None:
    module, trainer, given = cli.model, cli.trainer, cli.config
    assert isinstance(module, FusionModule)
    data: Any = cli.datamodule
    if given.json:
        printing.ask_for_json()
    found = module.checkpoints
    if isinstance(data, OwnData) and found:
        (data,), words = own_data.fitted_modules([data], list(found.values()), "measuring")
        rank_zero_only(tell)(f"fusionlab fuse: {words[0]}")
    if data is not None and not isinstance(data, FusionData):
        data = FusionData([data])
    output = expanded(given.output)
    sources = [one.source for one in found.values()]
    refuse_lost(output, sources if given.overwrite else [])
    refuse_existing(output, given.overwrite)
    refuse_unpushable(given)
    rank_zero_only(tell_differences)(sources, list(found), shares_heads=module.plan.heads == "merged")
    settings = {name: given.trainer.get(name) for name in ("accelerator", "devices", "precision")}
    plan = Plan(
        **{field.name: getattr(module.plan, field.name) for field in fields(FusionPlan)},
        points=given.points if module.plan.heads == "merged" else 0,
        examples=given.examples,
        plane=given.plane,
        trainer={name: value for name, value in settings.items() if value is not None},
    )
    measured = Data() if data is None else data.data
    refuse_misfit(module.fuser.end_models, measured, module.fuser.heads)
    refuse_no_plane(plan, len(module.models), measured)
    types = common_types(module.models.values()) if plan.dtype is None else plan.dtype
    kept = list(module.models.values()) if plan.heads == "own" else list(module.models.values())[:1]
    require_space(output, size_of_merge(kept, next(iter(found.values())), types) + REPORT_BYTES)
    modules, words = modules_of_fusion(found, plan, given.model.get("base"))
    merging_options.begin_hashes(found, given.model)
    _run(trainer, module, data, given.ckpt_path)
    plan = replace(plan, matchings=module.plan.matchings)
    results = results_of(module, measured, plan, module.results.title, module.fuser.inputs)
    assert module.fused is not None
    matchings = {name: str(module.fused.matched[name].recipe) for name in plan.matchings}
    told = {
        "command": command,
        "matching": f"{'; '.join(f'{name} ({words})' for name, words in matchings.items()) or 'none'}"
        f"{'' if module.choice is None else ', chosen by auto'}",
        "anchor": results.models[module.fuser.anchor],
        "merge methods": ", ".join(plan.methods),
        "seed": str(plan.seed),
    }
    parents = merging_options.parents(found, given.model)
    made = {key: told[key] for key in told if key != "command"}
    made |= merging_options.found_by_method(module.kept.notes)
    made |= {f"{label}, grown": described(growth) for label, growth in module.growths.items()}
    index = index_of_fusion(module.fused, results, measured)
    card = merge_card(parents, made, library_of(next(iter(found.values()))), card_table(results), index)
    advised = module.choice or advice_on(read_weights({name: one.model for name, one in found.items()}, found))
    results = replace(results, settings=told, notes=[advised_note(advised, results), *results.notes, *words])
    grew = as_grown(found, {name: module.models[name] for name in module.growths})
    write_fusion(module.fused, results, grew, output, given.overwrite, types, card, repeat, modules)
    _log(trainer, results)
    rank_zero_only(push_output)(given, output / "merged")


@rank_zero_only
def _log(trainer: Trainer, results: Results) -> None:
    """Write what the output's TensorBoard logs show beside the curves of each TensorBoardLogger, its own or another."""
    folders = [Path(logger.log_dir) for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
    drawn = plots(results) if folders else []
    for folder in folders:
        write_tensorboard(results, folder, drawn)
