"""What examples add gives the metric of any resample: the same as torchmetrics on that resample, made by hand."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from torch import Tensor, nn

from fusionlab.evaluation.contributions import Answers
from fusionlab.evaluation.formulas import ranks
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.forward import IGNORED

TAGS = ["O", "B-PER", "I-PER", "B-ORG"]
COUNT = 23


class Echo(nn.Module):
    """Its input is its logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(high: int, *shape: int, seed: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def unknown(labels: Tensor, share: float) -> Tensor:
    """Some of the labels become -100."""
    hidden = torch.rand(labels.shape, generator=torch.Generator().manual_seed(9)) < share
    return torch.where(hidden, IGNORED, labels)


def classes(metric: str | None) -> tuple[Callable[[], Scores], Tensor, Tensor]:
    return (
        lambda: make_scores(Echo(), "classification", TAGS, metric=metric),  # type: ignore[arg-type]
        normal(COUNT, 4, seed=0),
        unknown(integers(3, COUNT, seed=1), 0.2),
    )


def tokens(task: Any, names: list[str]) -> tuple[Callable[[], Scores], Tensor, Tensor]:
    labels = unknown(integers(4, COUNT, 7, seed=1), 0.3)
    labels[3] = IGNORED
    return lambda: make_scores(Echo(), task, names), normal(COUNT, 7, 4, seed=0), labels


def several(decision: Any) -> tuple[Callable[[], Scores], Tensor, Tensor]:
    labels = unknown(integers(2, COUNT, 4, seed=1), 0.3)
    labels[:, 2] = IGNORED
    return (
        lambda: make_scores(Echo(), "multilabel", TAGS, decision=decision),
        normal(COUNT, 4, seed=0),
        labels,
    )


def numbers() -> tuple[Callable[[], Scores], Tensor, Tensor]:
    # Rounded, so that ranks have ties; far from 0, so that squares cancel unless they are centred.
    wanted = (2 * normal(COUNT, seed=1)).round()
    return lambda: make_scores(Echo(), "regression"), 100 + (wanted + normal(COUNT, seed=0)).round()[:, None], wanted


CASES: dict[str, tuple[Callable[[], Scores], Tensor, Tensor]] = {
    "accuracy": classes(None),
    "macro F1": classes("macro_f1"),
    "Matthews": classes("matthews"),
    "accuracy of tokens": tokens("tokens", list("abcd")),
    "entities": tokens("tokens", TAGS),
    "several labels": several("probability"),
    "several labels by logit": several("logit"),
    "numbers": numbers(),
    "masked language model": tokens("masked_lm", TAGS),
    "causal language model": tokens("causal_lm", TAGS),
}


def measured(make: Callable[[], Scores], output: Tensor, labels: Tensor, keep: bool) -> Scores:
    """Scores after three uneven batches."""
    scores = make().keep_examples() if keep else make()
    for part in (slice(0, 3), slice(3, 4), slice(4, None)):
        scores.update(Echo(), {"x": output[part], "labels": labels[part]})
    return scores


def answers(name: str) -> Answers:
    return measured(*CASES[name], keep=True).answers()


@pytest.mark.parametrize("name", CASES)
def test_the_whole_set_has_the_metrics_of_torchmetrics(name: str) -> None:
    """Every metric, to rounding of float32; keeping the examples changes no score."""
    wanted = measured(*CASES[name], keep=True).compute()
    assert wanted == measured(*CASES[name], keep=False).compute()
    found = answers(name).contributions
    assert list(found) == list(wanted)
    for metric, value in wanted.items():
        assert found[metric].examples == COUNT
        assert found[metric].scores(np.ones((1, COUNT))) == pytest.approx([value], rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_resample_has_the_metrics_of_its_examples(name: str) -> None:
    """Drawn by hand, with some examples twice and others not at all, and scored anew."""
    make, output, labels = CASES[name]
    found = answers(name).contributions
    generator = np.random.default_rng(3)
    rows = [generator.integers(0, COUNT, COUNT) for _ in range(8)]
    weights = np.stack([np.bincount(row, minlength=COUNT) for row in rows]).astype(float)
    for metric, contributions in found.items():
        wanted = []
        for row in rows:
            chosen = torch.from_numpy(row)
            wanted.append(measured(make, output[chosen], labels[chosen], keep=False).compute()[metric])
        assert len({round(value, 6) for value in wanted}) > 3, "resamples must differ here"
        assert contributions.scores(weights) == pytest.approx(wanted, rel=2e-5, abs=1e-5)


def test_a_class_that_is_nowhere_is_not_in_the_mean() -> None:
    """Neither predicted nor true in a resample, as torchmetrics has it."""
    output, labels = torch.eye(4)[:3].repeat(3, 1), torch.tensor([0, 1, 1, 0, 1, 2, 0, 0, 2])
    scores = make_scores(Echo(), "classification", TAGS, metric="macro_f1").keep_examples()
    scores.update(Echo(), {"x": output, "labels": labels})
    found = scores.answers().contributions["macro_f1"].scores(np.ones((1, 9)))
    assert found == pytest.approx([scores.compute()["macro_f1"]], rel=1e-6)
    assert found == pytest.approx([f1_score(labels, output.argmax(-1), average="macro")], rel=1e-6)


def test_sentences_without_entities_score_0() -> None:
    """In a resample without any, predicted or true, as in a test set of such sentences."""
    labels = torch.tensor([[0, 0], [1, 2]])
    scores = make_scores(Echo(), "tokens", TAGS).keep_examples()
    scores.update(Echo(), {"x": nn.functional.one_hot(labels, 4).float(), "labels": labels})
    found = scores.answers().contributions["f1"].scores(np.array([[2.0, 0.0], [0.0, 2.0]]))
    assert found.tolist() == [0, 1]


def test_correlations_are_those_of_scipy() -> None:
    """To float64, on a resample, ties included."""
    _, output, labels = CASES["numbers"]
    row = np.random.default_rng(4).integers(0, COUNT, COUNT)
    weights = np.bincount(row, minlength=COUNT)[None].astype(float)
    found = answers("numbers").contributions
    x, y = output[:, 0].double().numpy()[row], labels.double().numpy()[row]
    assert found["pearson"].scores(weights) == pytest.approx([pearsonr(x, y).statistic], rel=1e-10)
    assert found["spearman"].scores(weights) == pytest.approx([spearmanr(x, y).statistic], rel=1e-10)


def test_ranks_share_ties() -> None:
    """1, 2 and 2 of 5, 7 and 7; an example drawn twice is tied with itself."""
    found = ranks(np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 0.0]]), np.array([7.0, 5.0, 7.0]))
    assert found[0].tolist() == [2.5, 1.0, 2.5]
    assert found[1, :2].tolist() == [2.5, 1.0]


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("same", [0, 1])
def test_a_model_that_always_says_the_same_has_no_correlation(share: float, same: int) -> None:
    """Matthews' is 0 as scikit-learn has it, in the score and on every resample; it is told to be constant."""
    labels = (torch.arange(COUNT) < share * COUNT).long()
    output = nn.functional.one_hot(torch.full((COUNT,), same), 2).float()
    scores = make_scores(Echo(), "classification", ["no", "yes"], metric="matthews").keep_examples()
    scores.update(Echo(), {"x": output, "labels": labels})
    assert scores.compute()["matthews"] == 0 == matthews_corrcoef(labels, torch.full((COUNT,), same))
    found = scores.answers()
    assert found.contributions["matthews"].scores(np.ones((2, COUNT))).tolist() == [0, 0]
    assert found.is_constant
    assert not answers("Matthews").is_constant
    alike = make_scores(Echo(), "classification", ["no", "yes"]).keep_examples()
    alike.update(Echo(), {"x": output, "labels": torch.full_like(labels, same)})
    assert not alike.answers().is_constant, "where all labels are alike so are right answers"


def test_equal_outputs_have_no_pearson_correlation() -> None:
    """Not a number, as torchmetrics has it; ranks of equal numbers correlate with nothing."""
    scores = make_scores(Echo(), "regression").keep_examples()
    scores.update(Echo(), {"x": torch.full((COUNT, 1), 0.5), "labels": normal(COUNT, seed=1)})
    with pytest.warns(UserWarning, match="variance"):
        found_by_torchmetrics = scores.compute()
    assert np.isnan(found_by_torchmetrics["pearson"])
    found = scores.answers().contributions
    assert np.isnan(found["pearson"].scores(np.ones((1, COUNT)))).all()
    assert found["spearman"].scores(np.ones((1, COUNT))) == [0]


def test_chance_is_the_best_constant_answer() -> None:
    """Largest class for accuracy, its F1 over all classes for macro F1, a uniform guess for perplexity, else 0.

    Of several labels it is the best of all sets of labels, tried one by one.
    """
    _, _, labels = CASES["accuracy"]
    known = labels[labels != IGNORED].numpy()
    best = max(set(known.tolist()), key=lambda label: (known == label).sum())
    constant = np.full_like(known, best)
    assert answers("accuracy").chance == {"accuracy": pytest.approx((known == best).mean())}
    assert answers("macro F1").chance == {"macro_f1": pytest.approx(f1_score(known, constant, average="macro"))}
    assert answers("Matthews").chance == {"matthews": 0}
    assert answers("entities").chance == {"f1": 0}
    make, output, labels = CASES["several labels"]
    constant_answers = [torch.tensor(said).expand_as(output) for said in itertools.product((-1.0, 1.0), repeat=4)]
    scores = [measured(make, said, labels, keep=False).compute() for said in constant_answers]
    best_answers = {name: max(one[name] for one in scores) for name in ("macro_f1", "micro_f1")}
    assert answers("several labels").chance == pytest.approx(best_answers)
    assert 0.1 < best_answers["macro_f1"] != pytest.approx(best_answers["micro_f1"])
    assert answers("numbers").chance == {"pearson": 0, "spearman": 0}
    assert answers("causal language model").chance == {"perplexity": 4}


def test_reset_forgets_the_examples() -> None:
    """Only later ones count, and without `keep_examples` there are none."""
    make, output, labels = CASES["accuracy"]
    scores = measured(make, output, labels, keep=True)
    scores.reset()
    scores.update(Echo(), {"x": output[:5], "labels": labels[:5]})
    assert scores.answers().contributions["accuracy"].examples == 5
    with pytest.raises(ValueError, match="keep_examples"):
        make().answers()


def test_half_a_million_examples_take_few_bytes() -> None:
    """Sixteen bytes an example for loss and accuracy, so that ten candidates on a million take 160 MB."""
    found = answers("accuracy").contributions
    dense = [contributions.values for contributions in found.values()]
    assert sum(np.asarray(values).nbytes for values in dense) == 16 * COUNT
