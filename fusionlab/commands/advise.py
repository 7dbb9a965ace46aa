"""``fusionlab advise``: what models are to one another, what will help to merge them, and what to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from jsonargparse import ArgumentParser

from fusionlab import printing
from fusionlab.advice import HEADS, Advice, advice_on, looked_at, of_one_naming, stored_weights, table_lines
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import parsing
from fusionlab.commands.merge_output import progress
from fusionlab.errors import InputError
from fusionlab.evaluation.curves import Curve
from fusionlab.evaluation.wording import format_value, metric_label

DESCRIPTION = """Say what models are to one another, what will help to merge them, and what to run.

The weights of each model are held against the first one's, piece by piece in their files; no model is run, and the
architecture need not be known. With --data a short line between the models is measured too, and where the weights leave
open whether learned matching helps, 512 training inputs decide, without labels."""
# Options of the short line.
_LINE = ("--data", "--out_of_domain", "--out-of-domain", "--points", "--config", "-h", "--help")
# Positions on the short line, both ends included.
_POINTS = 5


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints, options or data that do not fit.
    """
    # The data and what measures take seconds to import.
    measures = any(word.partition("=")[0].partition(".")[0] in _LINE for word in argv)
    parser, given, data = _parser(measures), list(argv), None
    if measures:
        from fusionlab.commands import own_data  # noqa: PLC0415

        given = own_data.written_out(argv, several=False)
        words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--data=") else [word])]
        data = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "--data"), None)
    arguments = parsing.parse(parser, given)
    if arguments.get("data") is None and arguments.get("out_of_domain"):
        raise InputError(
            "out_of_domain is given without data; expected --data too, on which the line is measured first"
        )
    names = short_names(arguments.ckpts, arguments.names)
    models = of_one_naming([stored_weights(*found) for found in zip(arguments.ckpts, names, strict=True)])
    with progress("comparing", models[0].size * (len(models) - 1)) as advance:
        advice = advice_on(models, data, advance)
    curves, unmeasured = list[Curve](), ""
    if arguments.get("data") is not None:
        from fusionlab.commands.short_line import measured  # noqa: PLC0415

        try:
            curves, agreement = measured(arguments)
            advice = looked_at(advice, models, agreement, data)
        except InputError as error:
            # Between models that cannot be merged as they are there is no line, and the advice is what they need.
            if not advice.has_no_line:
                raise
            unmeasured = f"No line is measured: {error}."
    lines = [asdict(curve) | {"barrier": curve.barrier} for curve in curves]
    printing.publish(advice.to_dict() | {"lines": lines, "unmeasured": unmeasured})
    _tell(advice, curves, unmeasured)


def _parser(measures: bool) -> ArgumentParser:
    parser = parsing.make_parser("advise", DESCRIPTION, seed=measures)
    parsing.add_checkpoints(parser)
    parsing.add_names(parser)
    parsing.add_json(parser)
    if measures:
        from fusionlab.commands import data_options  # noqa: PLC0415

        data_options.add_data(parser, points=_POINTS)
    return parser


def _tell(advice: Advice, curves: Sequence[Curve], unmeasured: str) -> None:
    from rich.table import Table  # noqa: PLC0415 - its first use is the last thing that is done

    console = printing.results()
    for pair in advice.pairs:
        if not pair.whole.tensors:
            continue
        table = Table(title=f"{pair.first} and {pair.second}", title_justify="left")
        for index, head in enumerate(HEADS):
            table.add_column(head, justify="right" if index else "left", overflow="fold")
        for line in table_lines(pair):
            table.add_row(*line)
        console.print(table)
    for sentence in filter(None, [*advice.lines, *map(sentence_of, curves), unmeasured]):
        console.print(sentence, highlight=False, soft_wrap=True)
    for command, words in zip(advice.commands, ("Run", "Without data"), strict=False):
        console.print(f"{words}: {command}", highlight=False, soft_wrap=True)


def sentence_of(curve: Curve) -> str:
    """A short line between two models in words.

    Args:
        curve: of the models as they are.
    """
    ends = f"{curve.loss[0]:.3f} and {curve.loss[-1]:.3f}"
    half = f"{curve.midpoint_loss:.3f} half way"
    score = f"{metric_label(curve.metric)} {format_value(curve.metric, curve.midpoint_score, unit=True)}"
    return (
        f"{curve.data_set}: the loss is {ends} at {curve.anchor} and {curve.source}, and {half} ({score}); barrier "
        f"{curve.barrier:.3f}."
    )
