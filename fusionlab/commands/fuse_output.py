"""The files that ``fusionlab fuse`` writes, and the text that it prints."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from fusionlab import checkpoints, printing
from fusionlab.advice import Advice, Choice
from fusionlab.atomic import atomic_folder
from fusionlab.checkpoints.card import CARD
from fusionlab.commands.outside import tell_outside
from fusionlab.commands.plain_folder import write_plain_folder
from fusionlab.commands.repeat import REPEAT
from fusionlab.dtypes import Types, stored_size
from fusionlab.evaluation.expectation import against_expectation
from fusionlab.evaluation.folder import write
from fusionlab.evaluation.kept import SHARE_DECIMALS, kept_of_tasks
from fusionlab.evaluation.model_index import hub_task, model_index
from fusionlab.evaluation.preservation import Preservation
from fusionlab.evaluation.report import console_table
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.verdict import verdict
from fusionlab.evaluation.wording import listing, merge_name
from fusionlab.fusion import Data, Fused, TaskModels

# The trials of a search, in an output.
SEARCH = "search.json"
# Of what the best end model has on a task; a merge that keeps less of some is told how to get it back.
NOTED_SHARE = 0.99
# Of what a merge of eight image classifiers lost, what a polish on so many inputs of each task brought back, in percent
# (docs/results/same_base.md); and that page by its title, as an installation has no docs.
BROUGHT_BACK = {16: 29, 64: 64, 256: 76}
MEASURED = '"Fine-tunes of one base: every method" in the documentation'


@rank_zero_only
def write_fusion(
    fused: Fused,
    results: Results,
    found: Mapping[str, checkpoints.Checkpoint],
    output: Path,
    overwrite: bool,
    types: Types | torch.dtype,
    card: str,
    repeat: str,
    modules: Mapping[str, bytes | None] | None = None,
) -> None:
    """Write the folder of a fusion and tell what is in it; one process of several does.

    Args:
        fused: what was matched and merged.
        results: what was measured.
        found: the checkpoints of the end models by name.
        output: the folder.
        overwrite: whether one that exists may be replaced.
        types: to write the merge in.
        card: the text of its model card.
        repeat: a config that repeats the command.
        modules: weight files of modules beside the merged transformer, by path in its folder.

    Raises:
        InputError: the folder exists and may not be replaced.
    """
    with atomic_folder(output, overwrite) as temporary:
        assert fused.kept is not None
        _write_merge(fused.kept.model, found, temporary, types, {CARD: card, **(modules or {})})
        (temporary / REPEAT).write_text(repeat, encoding="utf-8")
        write(results, temporary)
        if fused.search is not None:
            (temporary / SEARCH).write_text(fused.search.to_json(), encoding="utf-8")
    tell_fusion(results, output, {name: _worst(matched.preservation) for name, matched in fused.matched.items()})


def index_of_fusion(fused: Fused, results: Results, data: Data) -> list[dict[str, Any]]:
    """The scores of the merge as metadata of its card; none where models keep their heads and have a folder each.

    Args:
        fused: what was matched and merged.
        results: what was measured.
        data: on which.
    """
    kept = None if fused.kept is None else fused.kept.model
    if kept is None or isinstance(kept, TaskModels):
        return []
    return model_index(results, {one.name: hub_task(kept, one.task) for one in data.sets})


def advised_note(advised: Advice | Choice, results: Results) -> str:
    """Advice on the models for a report, held against what was measured.

    Args:
        advised: by the weights alone.
        results: what was measured then.
    """
    case = (advised.advice if isinstance(advised, Choice) else advised).described
    measured = None if case.are_apart is None else against_expectation(results, case.are_apart)
    return advised.note if measured is None else f"{advised.note} {measured}"


def way_back(argv: Sequence[str], results: Results, may_polish: bool) -> list[str]:
    """A sentence with the command that may bring back what a merge of several tasks lost, where it lost something.

    Args:
        argv: of the command that was run.
        results: what was measured.
        may_polish: whether the merge was not polished yet.
    """
    # As they are told: a share that is shown as 99.0 % is not below it.
    shares = [round(one.share, SHARE_DECIMALS) for one in kept_of_tasks(results)]
    if len(shares) < 2 or min(shares) >= NOTED_SHARE or not may_polish:
        return []
    command = shlex.join(["fusionlab", "fuse", *argv, "--polish"])
    inputs, percent = (listing([str(one) for one in of]) for of in (BROUGHT_BACK, BROUGHT_BACK.values()))
    return [
        f"A short distillation towards the end models' outputs, on inputs without labels, may bring back what was "
        f"lost: {command} (with another --output; --samples says on how many inputs). Of what a merge of eight image "
        f"classifiers lost, {inputs} inputs of each task brought back {percent} % (see {MEASURED})."
    ]


def _worst(checks: Sequence[Preservation]) -> float:
    return max(check.stored for check in checks)


def tell_fusion(results: Results, output: Path, differences: Mapping[str, float]) -> None:
    """Print what was measured, for people or for machines.

    Args:
        results: all of it.
        output: the folder that was written.
        differences: by matching, the largest change of logits by it, relative to the largest logit.
    """
    _publish(results, output, differences)
    console = printing.results()
    if results.rows or results.distances:
        console.print(console_table(results))
        console.print(verdict(results).headline.replace("`", ""), highlight=False)
    for note in results.notes:
        console.print(note, style="dim")
    for label, worst in differences.items():
        console.print(
            f"{label}: matching changed no model's logits by more than {worst:.1e} of the largest", style="dim"
        )
    if results.kept is not None:
        kept = merge_name(*results.kept).replace("`", "")
        console.print(f"Written to {output / 'merged'}: {kept}", highlight=False, soft_wrap=True)
    console.print(f"Report: {output / 'report.html'}", highlight=False, soft_wrap=True)


def _publish(results: Results, output: Path, differences: Mapping[str, float]) -> None:
    """Print for machines what was measured, and where it is."""
    printing.publish(
        {
            "title": results.title,
            "models": list(results.models),
            "headline": verdict(results).headline.replace("`", ""),
            "kept": results.kept,
            "rows": json.loads(results.to_json()),
            "notes": results.notes,
            "settings": results.settings,
            "logits_differ_by": dict(differences),
            "output": str(output),
        }
    )


def size_of_merge(kept: Sequence[nn.Module], first: checkpoints.Checkpoint, types: Types | torch.dtype) -> int:
    """The bytes that a merge takes on the disk.

    Args:
        kept: one model, or several that keep their heads.
        first: the checkpoint whose format it is written in; of a Lightning file a folder is written too.
        types: to write it in.
    """
    return (2 if first.format == "lightning" else 1) * sum(stored_size(model, types) for model in kept)


def _write_merge(
    model: nn.Module,
    found: Mapping[str, checkpoints.Checkpoint],
    folder: Path,
    types: Types | torch.dtype,
    texts: Mapping[str, str | bytes | None],
) -> None:
    """Write the merge in the format of the end models: one checkpoint, or one for each task that kept its head."""
    first = next(iter(found.values()))
    tell_outside(found.values() if isinstance(model, TaskModels) else [first])
    if isinstance(model, TaskModels):
        texts = {name: text for name, text in texts.items() if isinstance(text, str)}
        for (name, checkpoint), task in zip(found.items(), model.tasks, strict=True):
            checkpoint.write(task, folder / "merged" / checkpoint.entry(name), types=types, texts=texts)
        return
    output = folder / f"merged{'.ckpt' if first.format == 'lightning' else ''}"
    first.write(model, output, types=types, texts=texts)
    if first.format == "lightning":
        (folder / "merged").mkdir()
        write_plain_folder(model, first, folder / "merged", types, texts)
