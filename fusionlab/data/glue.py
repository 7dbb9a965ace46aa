"""Tasks of the GLUE benchmark, from the hub or from local files."""

from dataclasses import dataclass
from typing import Any, Literal

from fusionlab.data.text_classification import TextClassification
from fusionlab.errors import InputError
from fusionlab.evaluation.scores import ClassMetric
from fusionlab.paths import expanded

HUB_ID = "nyu-mll/glue"


@dataclass(frozen=True)
class GlueTask:
    """Columns, labels and metric of one task."""

    text: str = "sentence"
    pair: str | None = None
    label: str = "label"
    labels: tuple[str, ...] = ()
    metric: ClassMetric | None = None
    test: str = "validation"

    @property
    def task(self) -> Literal["classification", "regression"]:
        """A task without labels is a regression."""
        return "classification" if self.labels else "regression"


TASKS = {
    "cola": GlueTask(labels=("unacceptable", "acceptable"), metric="matthews"),
    "sst2": GlueTask(labels=("negative", "positive")),
    "stsb": GlueTask("sentence1", "sentence2"),
    "mrpc": GlueTask("sentence1", "sentence2", labels=("not_equivalent", "equivalent")),
    "qqp": GlueTask("question1", "question2", labels=("not_duplicate", "duplicate")),
    "mnli": GlueTask(
        "premise", "hypothesis", labels=("entailment", "neutral", "contradiction"), test="validation_matched"
    ),
    "qnli": GlueTask("question", "sentence", labels=("entailment", "not_entailment")),
    "rte": GlueTask("sentence1", "sentence2", labels=("entailment", "not_entailment")),
    "wnli": GlueTask("sentence1", "sentence2", labels=("not_entailment", "entailment")),
}


class GLUE(TextClassification):
    """One task of GLUE (Wang et al., 2019): CoLA by Matthews correlation, STS-B by Pearson's, the others by accuracy.

    The benchmark keeps the labels of its test sets to itself, so that models are tested on the validation split, and
    validated on rows held out from training.
    """

    def __init__(
        self,
        name: str,
        tokenizer: str,
        *,
        path: str = HUB_ID,
        label_column: str | None = None,
        test_split: str | None = None,
        val_size: int | float = 0.05,
        **options: Any,
    ) -> None:
        """Say which task and where it is.

        Args:
            name: cola, sst2, stsb, mrpc, qqp, mnli, qnli, rte or wnli.
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            path: a hub id with one configuration for each task, or a local file with the benchmark's columns.
            label_column: column of the labels; the benchmark's if null.
            test_split: name of the test split; the benchmark's (matched) validation split if null.
            val_size: rows, or below 1 the share of rows, held out from training if there is no `val_split`.
            options: splits, lengths and batches, see `TextData`.

        Raises:
            InputError: an unknown task, or a value out of range.
        """
        if name not in TASKS:
            raise InputError(f"data.name is {name!r}, but one of {', '.join(TASKS)} was expected")
        known = TASKS[name]
        options = {"config_name": None if expanded(path).exists() else name, **options}
        super().__init__(
            path, tokenizer, task=known.task, text_column=known.text, pair_column=known.pair,
            label_column=label_column or known.label, labels=list(known.labels) or None, metric=known.metric,
            test_split=test_split or known.test, val_size=val_size, **options,
        )  # fmt: skip
        self.name = name
