"""``fusionlab demo``: train, match, merge and report on embedded data."""

import time
from collections.abc import Iterator, Mapping, Sequence
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
after matching in several ways, from the paper's to a learned one, and writes a report that says what worked.
With --sizes one of the two is smaller in width and depth, and is grown into the architecture of the other first."""

CONFIG = "vit_digits.yaml"


@dataclass(frozen=True)
class DemoOptions:
    """Options of the command.

    Attributes:
        epochs: passes over the training data, at least 1; those of the config if not given, and half as many with
            ``--sizes``.
        sizes: whether one of the models is smaller: 4 layers, 48 wide, beside 6 layers, 80 wide.
    """

    epochs: int | None = None
    sizes: bool = False


@dataclass(frozen=True)
class Story:
    """The two models that are trained, and what is said of them.

    Attributes:
        end_models: by name the seed, beside that of the command, and what differs from the config's model.
        title: of the report.
        opening: the first sentence on the console.
        described: the end models, in the report's settings.
        matchings: recipes by name; the merge by the last is written.
        share_of_epochs: of those of the config.
        note: what the report says of the ways of matching.
    """

    end_models: Mapping[str, tuple[int, Mapping[str, int]]]
    title: str
    opening: str
    described: str
    matchings: Mapping[str, Recipe]
    share_of_epochs: float
    note: str


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
    story = of_sizes() if arguments.sizes else of_seeds()
    epochs = arguments.epochs or round(story.share_of_epochs * settings["trainer"]["max_epochs"])
    console.print(story.opening)
    models = {
        name: _train(settings, arguments.seed + seed, epochs, changes)
        for name, (seed, changes) in story.end_models.items()
    }
    console.print(
        f"\nTheir weights are averaged, unmatched and matched in {len(story.matchings)} ways; learning comes last."
    )
    settings_of_trainer = {"accelerator": "cpu", "devices": 1}
    plan = Plan(
        story.matchings,
        anchor=1,
        ensemble=True,
        examples=SHOWN_EXAMPLES,
        trainer=settings_of_trainer,
        seed=arguments.seed,
    )
    with one_thread():
        data = Digits(**settings["data"]["init_args"])
        measured = Data.of([data])
        inputs = Inputs.of([data], len(models))
        fused, results = run_experiment(models, measured, plan, story.title, inputs)
        learned = next(c for c in fused.candidates if c.matching == list(plan.matchings)[-1])
        examples = examples_of([*models.values(), learned.model], measured, plan.examples)
    passes = "1 epoch" if epochs == 1 else f"{epochs} epochs"
    results = replace(
        results,
        settings={
            "command": f"fusionlab demo{' --sizes' if arguments.sizes else ''} --seed {arguments.seed}",
            "end models": f"{story.described}, {passes} on 1,300 of scikit-learn's digits",
            "anchor": results.models[fused.anchor],
            "merge method": "simple",
            "seconds in all": f"{time.perf_counter() - start:.0f}",
        },
        notes=[story.note, *results.notes],
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


def of_seeds() -> Story:
    """Two models of one size, matched from the paper's way to a learned one."""
    return Story(
        {"seed 1": (1, {}), "seed 2": (2, {})},
        "Two vision transformers from different seeds",
        "Two vision transformers are trained on the same digits from different seeds.",
        "ViT, 4 layers of 4 heads, 64 wide",
        {name: recipe(name) for name in ("paper", "git-rebasin", "weights", "learned")},
        1.0,
        "The paper's matching works inside attention heads and feed-forward layers. Models from different seeds "
        "also differ in the basis of their residual stream, which it leaves alone; that is why it helps so little "
        "here. The matching called weights folds the norms, which changes no function either, and then rotates "
        "the residual stream as well, without any data. The one called learned starts there and turns the bases "
        "by gradient descent until what lies between the models works; it looks at training images, not at labels.",
    )


def of_sizes() -> Story:
    """A small and a large model, the small one grown, matched by weights and learned."""
    large = {"hidden_size": 80, "intermediate_size": 160, "num_hidden_layers": 6}
    return Story(
        {"small": (1, {"hidden_size": 48, "intermediate_size": 96}), "large": (101, large)},
        "A small and a large vision transformer from different seeds",
        "A small and a large vision transformer are trained on the same digits from different seeds.",
        "ViT, 4 layers, 48 wide, and 6 layers, 80 wide, both with 4 heads in a layer",
        {name: recipe(name) for name in ("weights", "learned")},
        0.5,
        "The small model is grown into the large one's architecture, where it computes what it computed: its layers "
        "stand among new ones that write nothing, its stream is longer by entries that are zero, and what is new and "
        "changes nothing is taken from the large model. Then the two are matched as models of one size. fusionlab "
        "shrink brings the merge back to the small size.",
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """These matrices are too small to share: a second thread only waits, the longer the busier the machine is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train(settings: dict[str, Any], seed: int, epochs: int, changes: Mapping[str, int]) -> nn.Module:
    """An end model of the shipped config, from one seed, its architecture with some changes."""
    seed_everything(seed, verbose=False)
    given = settings["model"]["init_args"]
    task = ImageClassification(**given | {"model": given["model"] | changes})
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
