"""``fusionlab demo``: train, match, merge and report on embedded data."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import yaml
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import RichProgressBar
from torch import nn

from fusionlab import checkpoints, configs, printing
from fusionlab.atomic import atomic_folder, refuse_existing, require_space
from fusionlab.commands import parsing
from fusionlab.commands.option_groups import add_fields
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.evaluation.folder import write
from fusionlab.evaluation.report import console_table
from fusionlab.evaluation.verdict import verdict
from fusionlab.experiment import REPORT_BYTES, SHOWN_EXAMPLES, Plan, examples_of
from fusionlab.experiment import run as run_experiment
from fusionlab.fusion import Data
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import Recipe, recipe
from fusionlab.paths import expanded
from fusionlab.tasks import ImageClassification

DESCRIPTION = """Train, match, merge and report on scikit-learn's handwritten digits, with nothing to download.

Trains two small vision transformers that differ in nothing but their seed, averages their weights as they are and
after matching in several ways, from the paper's to a learned one, and writes a report that says what worked."""

CONFIG = "vit_digits.yaml"
SEEDS = (1, 2)


@dataclass(frozen=True)
class DemoOptions:
    """Options of the command.

    Attributes:
        epochs: passes over the training data, at least 1; those of the config if not given.
    """

    epochs: int | None = None


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: wrong options, or an output that exists.
    """
    parser = parsing.make_parser("demo", DESCRIPTION)
    parsing.add_output(parser, required=False, default="demo")
    add_fields(parser, DemoOptions)
    arguments = parsing.parse(parser, argv)
    if arguments.epochs is not None and arguments.epochs < 1:
        raise InputError(f"epochs is {arguments.epochs}; expected at least 1")
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    require_space(output, REPORT_BYTES)
    console, start = printing.results(), time.perf_counter()

    settings = yaml.safe_load(configs.resolve(CONFIG).read_text(encoding="utf-8"))
    epochs = arguments.epochs or settings["trainer"]["max_epochs"]
    console.print("Two vision transformers are trained on the same digits from different seeds.")
    models = {f"seed {seed}": _train(settings, arguments.seed + seed, epochs) for seed in SEEDS}
    console.print(
        f"\nTheir weights are averaged, unmatched and matched in {len(matchings())} ways; learning comes last."
    )
    settings_of_trainer = {"accelerator": "cpu", "devices": 1}
    plan = Plan(
        matchings(), anchor=1, ensemble=True, examples=SHOWN_EXAMPLES, trainer=settings_of_trainer, seed=arguments.seed
    )
    with one_thread():
        data = Digits(**settings["data"]["init_args"])
        measured = Data.of([data])
        inputs = Inputs.of([data], len(models))
        title = "Two vision transformers from different seeds"
        fused, results = run_experiment(models, measured, plan, title, inputs)
        learned = next(c for c in fused.candidates if c.matching == list(plan.matchings)[-1])
        examples = examples_of([*models.values(), learned.model], measured, plan.examples)
    passes = "1 epoch" if epochs == 1 else f"{epochs} epochs"
    results = replace(
        results,
        settings={
            "command": f"fusionlab demo --seed {arguments.seed}",
            "end models": f"ViT, 4 layers of 4 heads, 64 wide, {passes} on 1,300 of scikit-learn's digits",
            "anchor": results.models[fused.anchor],
            "merge method": "simple",
            "seconds in all": f"{time.perf_counter() - start:.0f}",
        },
        notes=[
            "The paper's matching works inside attention heads and feed-forward layers. Models from different seeds "
            "also differ in the basis of their residual stream, which it leaves alone; that is why it helps so little "
            "here. The matching called weights folds the norms, which changes no function either, and then rotates "
            "the residual stream as well, without any data. The one called learned starts there and turns the bases "
            "by gradient descent until what lies between the models works; it looks at training images, not at labels.",
            *results.notes,
        ],
        # The one that is written.
        kept=("simple", learned.matching),
        examples=examples,
    )
    with atomic_folder(output, arguments.overwrite) as temporary:
        for name, model in models.items():
            checkpoints.save(model, temporary / "end_models" / name.replace(" ", "_"))
        checkpoints.save(learned.model, temporary / "merged")
        write(results, temporary)
    console.print()
    console.print(console_table(results))
    console.print(verdict(results).headline.replace("`", ""), highlight=False)
    exact = max(check.exact for matched in fused.matched.values() for check in matched.preservation)
    console.print(f"Every matched model computes what it computed before, to {exact:.0e} in float64.", style="dim")
    console.print(f"\nReport: {output / 'report.html'}", highlight=False, soft_wrap=True)


def matchings() -> dict[str, Recipe]:
    """From the paper's matching to a learned one."""
    return {
        "paper": recipe("paper"),
        "git-rebasin": recipe("git-rebasin"),
        "weights": recipe("weights"),
        "learned": recipe("learned"),
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """These matrices are too small to share: a second thread only waits, the longer the busier the machine is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train(settings: dict[str, Any], seed: int, epochs: int) -> nn.Module:
    """An end model of the shipped config, from one seed."""
    seed_everything(seed, verbose=False)
    task = ImageClassification(**settings["model"]["init_args"])
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        callbacks=[RichProgressBar(console_kwargs=printing.progress_options())],
    )
    with one_thread():
        trainer.fit(task, datamodule=Digits(**settings["data"]["init_args"]))
    return task.model.eval()
