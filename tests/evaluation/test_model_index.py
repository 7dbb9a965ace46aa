"""Scores on a card as metadata: the hub's own library reads them again, and they are those that were measured."""

import math
from pathlib import Path

import pytest
import timm
import yaml
from huggingface_hub import ModelCard
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForTokenClassification,
    CLIPConfig,
    CLIPModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from fusionlab.checkpoints.card import Parent, merge_card
from fusionlab.evaluation.model_index import hub_task, model_index
from tests.commands.small import bert, vit
from tests.data import colours
from tests.evaluation.examples import judged
from tests.evaluation.merges import PAPER, PLAIN

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9}


def card(results: object, tasks: dict[str, str]) -> str:
    index = model_index(results, tasks)  # type: ignore[arg-type]
    return merge_card([Parent("one", "mit"), Parent("two", "mit")], {}, "transformers", index=index)


def test_the_hub_reads_the_scores_of_the_merge_that_is_kept(tmp_path: Path) -> None:
    """Of two data sets, each with its metrics; not those of end models and of other merges."""
    results = judged({PLAIN: 0.3, PAPER: 0.5}, sets=(("digits", "in"), ("letters: é", "out")), kept=PAPER)
    text = card(results, {"digits": "image-classification", "letters: é": "image-classification"})
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    read = ModelCard.load(tmp_path / "README.md").data
    assert (read.license, read.library_name, read.pipeline_tag) == ("mit", "transformers", "image-classification")
    told = {(one.dataset_name, one.metric_type): one for one in read.eval_results or []}
    assert set(told) == {(name, metric) for name in ("digits", "letters: é") for metric in ("loss", "accuracy")}
    for (name, metric), one in told.items():
        values = [row.value for row in results.rows if (row.method, row.matching) == PAPER]
        rows = [row for row in results.rows if (row.method, row.matching) == PAPER and row.data_set == name]
        assert one.metric_value == pytest.approx(next(row.value for row in rows if row.metric == metric), abs=1e-6)
        assert one.metric_value in [pytest.approx(value, abs=1e-6) for value in values]
        assert (one.task_type, one.dataset_split) == ("image-classification", "test")


def test_no_scores_and_no_numbers() -> None:
    """Without a merge that was scored there is no entry, and what is no number is no score."""
    assert model_index(judged({}), {"digits": "image-classification"}) == []
    assert "model-index" not in card(judged({}), {})
    (entry,) = model_index(judged({PLAIN: 0.5}, broken=[PLAIN]), {"digits": "image-classification"})
    ((result),) = entry["results"]
    assert [one["type"] for one in result["metrics"]] == ["accuracy"]
    assert all(math.isfinite(one["value"]) for one in result["metrics"])


def test_several_tasks_are_no_task_of_the_model() -> None:
    sets = (("digits", "in"), ("names", "in"))
    text = card(judged({PLAIN: 0.5}, sets=sets), {"digits": "image-classification", "names": "text-classification"})
    head = yaml.safe_load(text.split("---\n")[1])
    assert "pipeline_tag" not in head
    assert [one["task"]["type"] for one in head["model-index"][0]["results"]] == [
        "image-classification",
        "text-classification",
    ]


@pytest.mark.parametrize(
    ("model", "task"),
    [
        (lambda: vit(0), "image-classification"),
        (lambda: bert(0), "text-classification"),
        (lambda: timm.create_model("vit_tiny_patch16_224", depth=1), "image-classification"),
        (lambda: BertForTokenClassification(BertConfig(**SMALL)), "token-classification"),
        (lambda: BertForMaskedLM(BertConfig(**SMALL)), "fill-mask"),
        (lambda: LlamaForCausalLM(LlamaConfig(**SMALL)), "text-generation"),
        (lambda: CLIPModel(CLIPConfig(**colours.description())), "zero-shot-image-classification"),
    ],
)
def test_tasks_by_their_names_on_the_hub(model: object, task: str) -> None:
    made: nn.Module = model()  # type: ignore[operator]
    assert hub_task(made) == task
    assert hub_task(made, "similarity") == "sentence-similarity"
