"""The scores of a merge as the metadata of its card, in the form that hubs of models read (``model-index``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from fusionlab.evaluation.card_table import kept_entry
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.scores import Task
from fusionlab.evaluation.task_scores import compares_images, task_of
from fusionlab.evaluation.wording import metric_label

# Tasks and metrics as the Hugging Face hub calls them; a metric that is not here has its own name.
_TASKS: Mapping[Task, str] = {
    "tokens": "token-classification",
    "question_answering": "question-answering",
    "masked_lm": "fill-mask",
    "causal_lm": "text-generation",
    "seq2seq": "text2text-generation",
    "similarity": "sentence-similarity",
}
_CLASSIFICATION = {"pixel_values": "image", "input_values": "audio", "input_features": "audio", "input_ids": "text"}
_METRICS = {
    "macro_f1": "f1",
    "micro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


def hub_task(model: nn.Module, task: Task | None = None) -> str:
    """The task of a model by the name that it has on the hub, such as ``image-classification``.

    Args:
        model: of transformers or timm.
        task: that it is measured on; judged by its class if None.
    """
    task = task or task_of(model)
    if task == "classification" and compares_images(model):
        return "zero-shot-image-classification"
    # timm's models have no such name, and read images.
    reads = _CLASSIFICATION.get(getattr(model, "main_input_name", "pixel_values"), "text")
    return _TASKS.get(task, f"{reads}-classification")


def model_index(results: Results, tasks: Mapping[str, str]) -> list[dict[str, Any]]:
    """The scores of the merge that is kept, as the entries of ``model-index``.

    Args:
        results: what was measured.
        tasks: by data set, the name that its task has on the hub.

    Returns:
        One entry with a result for each data set, fractions from 0 to 1; none where no merge was scored.
    """
    table, kept = results.table(), kept_entry(results)
    found: dict[str, dict[str, Any]] = {}
    for column, value in zip(table.columns, () if kept is None else kept.values, strict=False):
        name = column.data_set
        if name is None or name not in tasks or value is None or not math.isfinite(value):
            continue
        result = found.setdefault(
            name,
            {"task": {"type": tasks[name]}, "dataset": {"name": name, "type": name, "split": "test"}, "metrics": []},
        )
        kind = _METRICS.get(column.metric, column.metric)
        result["metrics"].append({"type": kind, "value": round(value, 6), "name": metric_label(column.metric)})
    return [{"name": results.title, "results": list(found.values())}] if found else []
