"""Scores by task: chosen from the model or the data, equal to scikit-learn, scipy and torchmetrics over all batches."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from torch import Tensor, nn
from torchmetrics.text import Perplexity
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from fusionlab.errors import InputError
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.scores import Scores, Task
from fusionlab.evaluation.task_scores import make_scores, task_of
from fusionlab.forward import IGNORED

TAGS = ["O", "B-PER", "I-PER"]


class Echo(nn.Module):
    """Its input is its logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def scored(scores: Scores, output: Tensor, labels: Tensor) -> dict[str, float]:
    for part in (slice(0, 3), slice(3, None)):
        scores.update(Echo(), {"x": output[part], "labels": labels[part]})
    return scores.compute()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("decision", ["probability", "logit"])
def test_several_labels(decision: Any) -> None:
    """scikit-learn's F1 over the known entries; a label that nobody annotated is not in the mean."""
    output, labels = random(40, 4), (random(40, 4, seed=1) > 0.5).long()
    labels[random(40, 4, seed=2) > 0.8] = IGNORED
    labels[:, 2] = IGNORED
    found = scored(make_scores(Echo(), "multilabel", list("abcd"), decision=decision), output, labels)
    predicted = output >= 0.5 if decision == "logit" else output.sigmoid() >= 0.5
    columns = [(labels[:, i], predicted[:, i], labels[:, i] != IGNORED) for i in (0, 1, 3)]
    macro = np.mean([f1_score(wanted[known], given[known]) for wanted, given, known in columns])
    known = labels != IGNORED
    assert found["macro_f1"] == pytest.approx(macro, rel=1e-6)
    assert found["micro_f1"] == pytest.approx(f1_score(labels[known], predicted[known]), rel=1e-6)
    loss = nn.functional.binary_cross_entropy_with_logits(output[known], labels[known].float())
    assert found["loss"] == pytest.approx(float(loss), rel=1e-6)
    assert list(found) == ["loss", "macro_f1", "micro_f1"]


def test_a_number() -> None:
    """scipy's correlations."""
    output, labels = random(30, 1), random(30, seed=1)
    found = scored(make_scores(Echo(), "regression"), output, labels)
    assert found["pearson"] == pytest.approx(pearsonr(output[:, 0], labels).statistic, rel=1e-4)
    assert found["spearman"] == pytest.approx(spearmanr(output[:, 0], labels).statistic, rel=1e-4)
    assert found["loss"] == pytest.approx(float((output[:, 0] - labels).square().mean()), rel=1e-6)


@pytest.mark.parametrize(
    ("metric", "reference"),
    [("macro_f1", lambda y, x: f1_score(y, x, average="macro")), ("matthews", matthews_corrcoef)],
)
def test_one_label_by_other_metrics(metric: Any, reference: Any) -> None:
    """scikit-learn's, over the known labels."""
    output, labels = random(50, 3), torch.randint(3, (50,), generator=torch.Generator().manual_seed(1))
    labels[:7] = IGNORED
    found = scored(make_scores(Echo(), "classification", TAGS, metric=metric), output, labels)
    assert found[metric] == pytest.approx(reference(labels[7:], output[7:].argmax(-1)), rel=1e-5)
    assert list(found) == ["loss", metric]


@pytest.mark.parametrize("metric", ["macro_f1", "matthews"])
def test_a_model_may_answer_with_classes_that_the_data_lack(metric: Any) -> None:
    """Numbers of classes in a file that has no example of the last ones: scores and resamples are scikit-learn's."""
    model = Echo()
    model.config = SimpleNamespace(num_labels=5)  # type: ignore[assignment]
    said, labels = torch.tensor([3, 1, 2, 4, 0, 0]), torch.tensor([0, 1, 2, 2, 1, 0])
    scores = make_scores(model, "classification", ["0", "1", "2"], metric=metric).keep_examples()
    found = scored(scores, torch.eye(5)[said], labels)[metric]
    by_hand = f1_score(labels, said, average="macro") if metric == "macro_f1" else matthews_corrcoef(labels, said)
    assert found == pytest.approx(by_hand, rel=1e-5)
    assert scores.answers().contributions[metric].scores(np.ones((1, 6))) == pytest.approx([found], rel=1e-5)


@pytest.mark.parametrize("task", ["masked_lm", "causal_lm"])
def test_language_models(task: Task) -> None:
    """torchmetrics' perplexity; causal models are asked about the next token."""
    output, labels = random(5, 7, 11), torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
    labels[random(5, 7, seed=2) > 0.5] = IGNORED
    found = scored(make_scores(Echo(), task), output, labels)
    reference = Perplexity(ignore_index=IGNORED)
    pair = (output[:, :-1], labels[:, 1:]) if task == "causal_lm" else (output, labels)
    assert found["perplexity"] == pytest.approx(float(reference(*pair)), rel=1e-5)
    assert list(found) == ["loss", "perplexity"]


def test_tags() -> None:
    """Entities where the classes are IOB2 tags, else accuracy."""
    labels = torch.tensor([[1, 2, 0, IGNORED]] * 4)
    output = nn.functional.one_hot(torch.tensor([[1, 2, 0, 0]] * 2 + [[1, 0, 0, 0]] * 2), 3).float()
    assert scored(make_scores(Echo(), "tokens", TAGS), output, labels)["f1"] == 0.5
    assert scored(make_scores(Echo(), "tokens", list("abc")), output, labels)["accuracy"] == pytest.approx(10 / 12)


SIZE: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
T5: dict[str, Any] = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 9}
# Its class fills in masked tokens too.
BART: dict[str, Any] = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 9, "max_position_embeddings": 9,
}  # fmt: skip
NAMED: dict[str, Any] = {"id2label": dict(enumerate(TAGS)), "vocab_size": 9, **SIZE}


@pytest.mark.parametrize(
    ("model", "task", "main"),
    [
        (lambda: BertForSequenceClassification(BertConfig(**NAMED)), "classification", "accuracy"),
        (
            lambda: BertForSequenceClassification(BertConfig(problem_type="multi_label_classification", **NAMED)),
            "multilabel",
            "macro_f1",
        ),
        (
            lambda: BertForSequenceClassification(BertConfig(problem_type="regression", **NAMED)),
            "regression",
            "pearson",
        ),
        (lambda: BertForTokenClassification(BertConfig(**NAMED)), "tokens", "f1"),
        (lambda: BertForMaskedLM(BertConfig(**NAMED)), "masked_lm", "perplexity"),
        (
            lambda: GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9)),
            "causal_lm",
            "perplexity",
        ),
        (lambda: T5ForConditionalGeneration(T5Config(**T5)), "seq2seq", "perplexity"),
        (lambda: BartForConditionalGeneration(BartConfig(**BART)), "seq2seq", "perplexity"),
        (Echo, "classification", "accuracy"),
    ],
)
def test_the_model_says_what_it_is_for(model: Any, task: str, main: str) -> None:
    """Class and configuration are enough, also those of the models of an ensemble."""
    made = model()
    for one in (made, Ensemble([made, made])):
        assert task_of(one) == task
        assert make_scores(one).main == main


def test_an_ensemble_is_for_one_task() -> None:
    """Two equal language models score as one of them does; models for several tasks are refused."""
    made = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9)).eval()
    ids = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    found = []
    for one in (made, Ensemble([made, made])):
        scores = make_scores(one)
        scores.update(one, {"input_ids": ids, "labels": ids})
        found.append(scores.compute())
    assert found[0] == pytest.approx(found[1])
    with pytest.raises(InputError, match="the models of an ensemble are for causal_lm and classification; expected"):
        make_scores(Ensemble([made, Echo()]))


def test_mistakes() -> None:
    """An unknown task or metric, labels that do not fit, no names to score by."""
    for wrong in ({"task": "nope"}, {"metric": "nope"}):
        with pytest.raises(InputError, match="nope"):
            make_scores(Echo(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 labels for each sample, but the model has 3"):
        make_scores(Echo(), "multilabel", TAGS).add(torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(InputError, match="one was expected in a regression"):
        make_scores(Echo(), "regression").add(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(InputError, match="expected class_names"):
        make_scores(Echo(), "tokens")
