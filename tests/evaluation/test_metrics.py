"""A metric itself says which direction is better and which values it takes, under whatever name it goes."""

from typing import Any

import pytest
from torch import nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassHammingDistance
from torchmetrics.regression import MeanSquaredError

from fusionlab.errors import InputError
from fusionlab.evaluation.metrics import KINDS, is_fraction, kind_of, lower_is_better
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import make_scores

TAGS = ["O", "B-X", "I-X"]
SCORES = [
    {"task": "classification"},
    {"task": "classification", "metric": "macro_f1"},
    {"task": "classification", "metric": "matthews"},
    {"task": "multilabel"},
    {"task": "regression"},
    {"task": "tokens"},
    {"task": "question_answering"},
    {"task": "masked_lm"},
    {"task": "causal_lm"},
]


def test_results_know_the_metrics_of_every_task_by_what_computes_them() -> None:
    """Both ways: what any task is scored by has a kind, which is that of its metric, and no other score has one."""
    seen = {"loss"}
    for options in SCORES:
        arguments: dict[str, Any] = options
        scores = make_scores(nn.Identity(), class_names=TAGS, **arguments)
        found: dict[str, Any] = {"loss": scores.loss, **dict(scores.metrics.items())}
        for name, metric in found.items():
            assert KINDS[name] == kind_of(metric), name
        assert scores.main_is_loss == lower_is_better(scores.main)
        seen |= set(found)
    assert {name for name in KINDS if not name.startswith(("barrier", "distance", "score"))} == seen


def test_losses_and_distances_are_better_low_and_percentages_run_from_0_to_1() -> None:
    low = {"loss", "perplexity", "barrier", "distance", "distance_to_anchor", "distance_to_anchor_in_gauge"}
    assert {name for name in KINDS if lower_is_better(name)} == low
    assert {name for name in KINDS if is_fraction(name)} == {"accuracy", "macro_f1", "micro_f1", "f1", "exact_match"}


@pytest.mark.parametrize("metric", [MeanSquaredError(), MulticlassHammingDistance(3)])
def test_a_metric_is_judged_by_itself_and_not_by_its_name(metric: Metric) -> None:
    assert Scores({"accuracy": metric}).main_is_loss
    assert not Scores().main_is_loss


def test_an_unknown_name_is_refused() -> None:
    for ask in (lower_is_better, is_fraction):
        with pytest.raises(InputError, match="no metric 'word_error'; expected one of loss, accuracy"):
            ask("word_error")
