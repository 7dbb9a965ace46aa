"""The scores that fit a model and what it is used for."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassF1Score
from transformers.models.auto import modeling_auto

from fusionlab.errors import InputError
from fusionlab.evaluation.answer_scores import AnswerScores
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.matthews import Matthews
from fusionlab.evaluation.scores import (
    ClassMetric,
    Decision,
    LanguageModelScores,
    MultilabelScores,
    RegressionScores,
    Scores,
    Task,
    TokenScores,
)
from fusionlab.evaluation.similarity_scores import Pooling, SimilarityScores
from fusionlab.evaluation.span_f1 import Mode, is_iob2
from fusionlab.misfits import classes_of

# Scores of tasks in which nothing is to be chosen.
_PLAIN: Mapping[Task, type[Scores]] = {"regression": RegressionScores, "question_answering": AnswerScores}


def make_scores(
    model: nn.Module,
    task: Task | None = None,
    class_names: Sequence[str] | None = None,
    *,
    metric: ClassMetric | None = None,
    decision: Decision = "probability",
    mode: Mode = "strict",
    pooling: Pooling = "mean",
) -> Scores:
    """The scores that fit a model and its task.

    Args:
        model: what is to be scored; says the task and the classes where they are not given.
        task: what the model is used for, such as a data module's ``task``.
        class_names: names of the classes, in order, such as a data module's ``class_names``; needed for ``tokens``.
        metric: for ``classification``: ``accuracy`` if None, ``macro_f1`` or ``matthews``.
        decision: for ``multilabel``: when a label is predicted, see `MultilabelScores`.
        mode: for ``tokens``: what a stray ``I-`` tag is, see `SpanF1`.
        pooling: for ``similarity``: how a text gets one embedding, see `SimilarityScores`.

    Returns:
        Scores; tokens whose classes are no IOB2 tags are scored by accuracy.

    Raises:
        InputError: an unknown task or metric, or an ensemble of models for several tasks.
    """
    task = task or task_of(model)
    if task not in get_args(Task):
        raise InputError(f"the task is {task!r}, but one of {', '.join(get_args(Task))} was expected")
    if metric is not None and metric not in get_args(ClassMetric):
        raise InputError(f"the metric is {metric!r}, but one of {', '.join(get_args(ClassMetric))} was expected")
    if task == "multilabel":
        return MultilabelScores(_classes(model, class_names), decision)
    if task in _PLAIN:
        return _PLAIN[task]()
    if task == "similarity":
        return SimilarityScores(pooling)
    if task in ("masked_lm", "causal_lm", "seq2seq"):
        return LanguageModelScores(shift=task == "causal_lm")
    if task == "tokens" and all(map(is_iob2, names := _names(model, class_names))):
        return TokenScores(names, mode)
    chosen: dict[str, Metric] | None = None
    if task == "classification" and metric == "macro_f1":
        chosen = {metric: MulticlassF1Score(_classes(model, class_names), average="macro")}
    elif task == "classification" and metric == "matthews":
        chosen = {metric: Matthews(_classes(model, class_names))}
    return Scores(chosen)


@torch.no_grad()
def score_of(model: nn.Module, sets: Sequence[Iterable[Mapping[str, Tensor]]], scores: Scores | None = None) -> float:
    """A model's main metric over labelled batches; higher is better, so that a loss changes its sign.

    Args:
        model: is scored on its own device.
        sets: of batches with ``labels``; all count together.
        scores: new ones, which say the metric; those of the model's own task if None.
    """
    scores = (make_scores(model) if scores is None else scores).to(next(model.parameters()).device)
    for batches in sets:
        for batch in batches:
            scores.update(model, batch)
    found = scores.compute()[scores.main]
    return -found if scores.main_is_loss else found


def task_of(model: nn.Module) -> Task:
    """The task that a model is used for, judged by its class and configuration; of an ensemble that of its models.

    Raises:
        InputError: an ensemble of models for several tasks.
    """
    if isinstance(model, Ensemble):
        tasks = list(dict.fromkeys(task_of(one) for one in model.models))
        if len(tasks) > 1:
            raise InputError(f"the models of an ensemble are for {' and '.join(tasks)}; expected one task")
        return tasks[0]
    if is_seq2seq(model):
        return "seq2seq"
    name = type(model).__name__
    heads: dict[Task, Any] = {
        "tokens": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
        "question_answering": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
        "masked_lm": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "causal_lm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }
    for task, names in heads.items():
        if name in names.values():
            return task
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if problem == "multi_label_classification":
        return "multilabel"
    return "regression" if problem == "regression" else "classification"


def is_seq2seq(model: nn.Module) -> bool:
    """True for a model with an encoder of texts and a decoder that writes others; BART fills in masked tokens too."""
    is_known = type(model).__name__ in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values()
    return is_known and bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def classes_in(table: Mapping[str, Any]) -> Iterator[str]:
    """The names of classes in a table of transformers, in which some types have several.

    Args:
        table: from types of models to names.
    """
    for value in table.values():
        yield from (value,) if isinstance(value, str) else value


def compares_images(model: nn.Module) -> bool:
    """True for a model that tells how well each image goes with each text, such as CLIP."""
    if type(model).__name__ not in classes_in(modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES):
        return False
    reads = inspect.signature(model.forward).parameters
    # Images that are cut into patches beforehand, videos, and a head for one pair at a time are something else.
    others = ("spatial_shapes", "pixel_values_videos", "use_image_text_matching_head")
    return {"pixel_values", "input_ids"} <= set(reads) and not any(name in reads for name in others)


def _names(model: nn.Module, class_names: Sequence[str] | None) -> list[str]:
    if class_names is not None:
        return list(class_names)
    if isinstance(model, Ensemble):
        return _names(model.models[0], None)
    stored = getattr(getattr(model, "config", None), "id2label", None)
    if not stored:
        raise InputError(f"a {type(model).__name__} does not name its classes; expected class_names")
    return [str(stored[index]) for index in sorted(stored)]


def _classes(model: nn.Module, class_names: Sequence[str] | None) -> int:
    """The number of classes of the data, or of the model where it answers with more than the data name."""
    if isinstance(model, Ensemble):
        return max(_classes(one, class_names) for one in model.models)
    return max(len(_names(model, class_names)), classes_of(getattr(model, "config", model)) or 0)
