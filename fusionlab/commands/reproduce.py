"""``fusionlab reproduce``: the paper's tables and figures, each a grid that is shipped as a config."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jsonargparse import Namespace

from fusionlab import configs, printing
from fusionlab.atomic import try_to_write
from fusionlab.commands import compare, data_options, parsing
from fusionlab.commands.end_models import train_end_model
from fusionlab.commands.option_groups import add_fields, told
from fusionlab.errors import InputError
from fusionlab.grid.design import Grid
from fusionlab.grid.runner import GridRunner
from fusionlab.paths import expanded
from fusionlab.sentences import sentence
from fusionlab.suggestions import did_you_mean

DESCRIPTION = """Repeat the experiments of "Beyond the Permutation Symmetry of Transformers", by the paper's protocol.

The protocol is corrected where the published code has faults, or keeps them (--protocol published). Data and
checkpoints that cannot be had are named, with how to supply them, and the rest runs."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes:
        shows: what is in it.
        configs: shipped configs of `fusionlab compare`, one for each grid.
    """

    shows: str
    configs: tuple[str, ...]


@dataclass(frozen=True)
class ReproduceOptions:
    """Options of the command.

    Attributes:
        experiment: a table or figure of the paper.
    """

    experiment: str


EXPERIMENTS = {
    "table1": Experiment(
        "emotion and NER, in domain and on CoNLL, two language models",
        ("emotion_pairs.yaml", "emotion_pairs_deberta.yaml", "ner_growing.yaml", "ner_growing_deberta.yaml"),
    ),
    "table2": Experiment("two ViTs on CIFAR-10, six ways to merge them", ("vit_pair.yaml",)),
    "table3": Experiment("times of training, matching and merging", ("emotion_pairs.yaml", "vit_pair.yaml")),
    "figure3": Experiment("parts of the matching left out, on the ViTs", ("vit_pair_parts.yaml",)),
    "figure4": Experiment("distances after other ways to match the ViTs", ("vit_pair_matchers.yaml",)),
    "figure5": Experiment("the line between the two ViTs", ("vit_pair_line.yaml",)),
    "figure6": Experiment("subsets of layers matched, CoLA and STS-B", ("glue_layers.yaml",)),
}


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: an experiment that does not exist, or one of which nothing could run.
        Exception: nothing could run, some of it by an error of fusionlab's own.
    """
    parser = parsing.make_parser("reproduce", DESCRIPTION, seed=False)
    names = {"help": f"{told(ReproduceOptions, 'experiment')} Experiments: {', '.join(EXPERIMENTS)}."}
    add_fields(parser, ReproduceOptions, changes={"experiment": names}, positional=("experiment",))
    add_fields(parser, Grid, ("protocol",))
    place = f"{told(compare.RunOptions, 'output')} reproduce/EXPERIMENT if not given."
    add_fields(
        parser,
        compare.RunOptions,
        ("output", "dry_run", "on", "cpus"),
        {**compare.FLAGS, "output": {"type": str | None, "default": None, "help": place}},
    )
    data_options.add_devices(parser)
    arguments = parsing.parse(parser, argv)
    if arguments.experiment not in EXPERIMENTS:
        raise InputError(
            f"experiment is {arguments.experiment!r}; expected one of {', '.join(EXPERIMENTS)}"
            f"{did_you_mean(arguments.experiment, EXPERIMENTS)}"
        )
    where = compare.make_place(arguments)
    experiment, console = EXPERIMENTS[arguments.experiment], printing.results()
    output = expanded(arguments.output or f"reproduce/{arguments.experiment}") / arguments.protocol
    command = shlex.join(["fusionlab", "reproduce", *argv])
    failed: list[tuple[str, Exception]] = []
    for name in experiment.configs:
        console.rule(f"{name}: {experiment.shows}")
        runner = _runner(name, output / Path(name).stem, arguments)
        if arguments.dry_run:
            console.print(compare.plan_table(runner))
            continue
        try_to_write(runner.folder / "cells")
        try:
            compare.run_grid(runner, f"{arguments.experiment}: {experiment.shows}", command, console, where)
        except Exception as error:
            # What one grid lacks, or stumbles over, the others may not; a full disk or the like ends them all.
            if not isinstance(error, InputError) and sentence(error) is not None:
                raise
            failed.append((name, error))
            console.print(f"Nothing of {name} could run: {error}", style="red", highlight=False, soft_wrap=True)
    if len(failed) == len(experiment.configs):
        for _, reason in failed:
            if sentence(reason) is None:
                raise reason
        name, first = failed[0]
        raise InputError(
            f"nothing of {arguments.experiment} could run ({name}: {first}); docs/reproduce.md says which data and "
            f"checkpoints it needs and where the configs name them"
        )


def _runner(config: str, folder: Path, arguments: Namespace) -> GridRunner:
    """A grid of a shipped config, on the devices that the command line names."""
    devices = {name: str(getattr(arguments, name)) for name in ("accelerator", "devices", "precision")}
    options = [f"--{name}={value}" for name, value in devices.items()]
    argv = ["--config", str(configs.resolve(config)), f"--output={folder}", *options]
    parser = compare.make_parser("reproduce", DESCRIPTION)
    parsed = parsing.parse(parser, [*argv, f"--protocol={arguments.protocol}"])
    return GridRunner(compare.make_grid(parsed), folder, train_end_model, data_options.trainer_options(parsed))
