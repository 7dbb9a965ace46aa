"""The files that ``fusionlab fuse`` writes, and the text that it prints."""

import json
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
from fusionlab.commands.plain_folder import write_plain_folder
from fusionlab.commands.repeat import REPEAT
from fusionlab.dtypes import Types, stored_size
from fusionlab.evaluation.expectation import against_expectation
from fusionlab.evaluation.folder import write
from fusionlab.evaluation.model_index import hub_task, model_index
from fusionlab.evaluation.preservation import Preservation
from fusionlab.evaluation.report import console_table
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.verdict import verdict
from fusionlab.fusion import Data, Fused, TaskModels

# The trials of a search, in an output.
SEARCH = "search.json"


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
    if isinstance(model, TaskModels):
        texts = {name: text for name, text in texts.items() if isinstance(text, str)}
        for (name, checkpoint), task in zip(found.items(), model.tasks, strict=True):
            checkpoint.write(task, folder / "merged" / checkpoint.entry(name), types=types, texts=texts)
        return
    first = next(iter(found.values()))
    output = folder / f"merged{'.ckpt' if first.format == 'lightning' else ''}"
    first.write(model, output, types=types, texts=texts)
    if first.format == "lightning":
        (folder / "merged").mkdir()
        write_plain_folder(model, first, folder / "merged", types, texts)
