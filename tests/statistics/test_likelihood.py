"""The labels that Fisher information is taken for, against backward passes of single examples in float64."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification, LlavaConfig, LlavaForConditionalGeneration

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.statistics.likelihood import predicts, scores
from fusionlab.symmetry.float64 import InFloat64
from tests.statistics.fishers import (
    CLASSES,
    EXAMPLES,
    MODELS,
    Batch,
    assert_equal,
    brute_force,
    gathered,
    gpt2,
    images,
    log_probabilities,
    squares,
    take,
    texts,
)
from tests.symmetry.models import generator, random_model, randomize
from tests.symmetry.models import text_config as config_of

# All images share the texts of their classes, which have gradients of each image all the same.
WAYS = {"clip": "one by one"}


@pytest.mark.parametrize("name", MODELS)
def test_true_labels(name: str) -> None:
    """Mode ``empirical`` is the mean square of the gradients that the true labels give, one example at a time."""
    model, batch = (make() for make in MODELS[name])
    found = gathered(model, [batch], labels="empirical")
    assert found.settings["gradients"].startswith(WAYS.get(name, "batched"))
    assert_equal(found, brute_force(model, batch, "empirical"))


@pytest.mark.parametrize("name", ["roberta-sequence", "bert-sequence", "bert-token", "vit", "timm-vit", "clip"])
def test_all_classes(name: str) -> None:
    """Mode ``expected`` is every class's square, weighted by its probability, summed over the tokens that count."""
    model, batch = (make() for make in MODELS[name])
    found = gathered(model, [batch], labels="expected")
    assert found.settings["gradients"].startswith(WAYS.get(name, "batched"))
    assert_equal(found, brute_force(model, batch, "expected"))


@pytest.mark.parametrize("name", MODELS)
def test_labels_from_the_model(name: str) -> None:
    """Mode ``model`` is mode ``empirical`` for some labels: those whose log-likelihood its score is."""
    model, batch = (make() for make in MODELS[name])
    if name in ("gpt2", "t5"):
        # So few tokens that 31^2 labels can be tried.
        batch = {key: value[:, : 3 if name == "gpt2" else 2].clone() for key, value in batch.items()}
    if name == "bert-token":
        batch["labels"][:, 3:] = -100
    with InFloat64():
        score = scores(model, batch, "model", seed=3)[0]
    chosen = []
    for index in range(EXAMPLES):
        found = log_probabilities(model, take(batch, index, index + 1))[0].detach()
        tried = list(itertools.product(range(found.shape[1]), repeat=len(found)))
        values = torch.stack([found[range(len(found)), labels].sum() for labels in tried])
        misses = (values - score[index].detach()).abs()
        assert misses.min() < 1e-10
        chosen.append(list(tried[int(misses.argmin())]))
    assert_equal(
        gathered(model, [batch], labels="model", seed=3), brute_force(model, batch, "empirical", chosen), tolerance=1e-9
    )


def test_labels_are_drawn_from_the_models_distribution() -> None:
    """Over 300 seeds every class is drawn as often as the model says, to four standard deviations."""
    model, batch = random_model("vit-classifier"), take(images(), 0, 1)
    with torch.no_grad():
        model.classifier.weight.mul_(0.2)
    found = log_probabilities(model, batch)[0][0].detach()
    values = torch.stack([scores(model, batch, "model", seed)[0].detach() for seed in range(300)])
    counts = ((values - found).abs() < 1e-9).sum(0)
    assert counts.sum() == 300
    chances = found.exp()
    assert (chances > 0.02).sum() >= 3, "the case must be one where labels differ"
    assert ((counts - 300 * chances).abs() < 4 * (300 * chances * (1 - chances)).sqrt() + 1e-9).all()


def test_type_of_the_inputs_does_not_matter() -> None:
    """Inputs that a policy of double precision has turned into float64 have the same labels drawn."""
    model, batch = random_model("vit-classifier"), images()
    single = {**batch, "pixel_values": batch["pixel_values"].float()}
    double = {**batch, "pixel_values": batch["pixel_values"].float().double()}
    for seed in range(5):
        assert torch.equal(scores(model, single, "model", seed)[0], scores(model, double, "model", seed)[0])


def test_padding_on_the_left_of_a_causal_model() -> None:
    """What padding says of the first token does not count: the same texts padded on the right are told the same of."""
    model, right = gpt2(), texts("next")
    del right["labels"]
    lengths = right["attention_mask"].sum(1)
    right["position_ids"] = torch.arange(right["input_ids"].shape[1]).expand_as(right["input_ids"]).clone()
    places = (torch.arange(right["input_ids"].shape[1]) + lengths[:, None]) % right["input_ids"].shape[1]
    left = {name: tensor.gather(1, places) for name, tensor in right.items()}
    assert bool(left["attention_mask"][:, -1].all())
    assert not bool(left["attention_mask"][:, 0].all())
    for labels in ("empirical", "model"):
        expected = gathered(model, [right], labels=labels)
        assert_equal(gathered(model, [left], labels=labels), dict(expected.diagonal), tolerance=1e-9)


def test_several_labels() -> None:
    """Yes-or-no questions: true answers against binary cross-entropy, all answers weighted by their probability."""
    model = BertForSequenceClassification(config_of(BertConfig, problem_type="multi_label_classification"))
    model, batch = randomize(model, 0), texts()
    batch["labels"] = torch.randint(2, (EXAMPLES, CLASSES), generator=generator(0)).double()
    true = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    every = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for index in range(EXAMPLES):
        single = take(batch, index, index + 1)
        found = logits(model, single)[0]
        squares(model, -functional.binary_cross_entropy_with_logits(found, single["labels"][0], reduction="sum"), true)
        for output in found:
            chance = float(output.detach().sigmoid())
            squares(model, functional.logsigmoid(output), every, chance)
            squares(model, functional.logsigmoid(-output), every, 1 - chance)
    for labels, sums in (("empirical", true), ("expected", every)):
        assert_equal(gathered(model, [batch], labels=labels), {name: t / EXAMPLES for name, t in sums.items()})


def test_regression() -> None:
    """A Gaussian of variance 1: squared deviation times squared gradient, which is 1 on average."""
    config = config_of(BertConfig)
    config.num_labels = 1
    model, batch = randomize(BertForSequenceClassification(config), 0), texts()
    batch["labels"] = torch.randn(EXAMPLES, generator=generator(0), dtype=torch.float64)
    true = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    every = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for index in range(EXAMPLES):
        single = take(batch, index, index + 1)
        found = logits(model, single)[0, 0]
        squares(model, found, true, float(found.detach() - single["labels"][0]) ** 2)
        squares(model, found, every)
    for labels, sums in (("empirical", true), ("expected", every)):
        assert_equal(gathered(model, [batch], labels=labels), {name: t / EXAMPLES for name, t in sums.items()})


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_unknown_entries_of_several_labels(problem: str) -> None:
    """Where the label is -100 an output counts for nothing: not drawn, not weighted, not compared."""
    model = randomize(BertForSequenceClassification(config_of(BertConfig, problem_type=problem)), 0)
    batch = texts()
    answers = torch.rand(EXAMPLES, CLASSES, generator=generator(0), dtype=torch.float64)
    unknown = (torch.arange(EXAMPLES)[:, None] + torch.arange(CLASSES)) % 3 == 0
    batch["labels"] = (answers.round() if problem != "regression" else answers).masked_fill(unknown, -100)
    true = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    every = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for index in range(EXAMPLES):
        known = ~unknown[index]
        output = logits(model, take(batch, index, index + 1))[0][known]
        labels = batch["labels"][index][known]
        if problem == "regression":
            squares(model, -(output - labels).square().sum() / 2, true)
        else:
            squares(model, -functional.binary_cross_entropy_with_logits(output, labels, reduction="sum"), true)
        for number in output:
            chance = 1.0 if problem == "regression" else float((number.sigmoid() * (1 - number.sigmoid())).detach())
            squares(model, number, every, chance)
    for mode, sums in (("empirical", true), ("expected", every)):
        assert_equal(gathered(model, [batch], labels=mode), {name: t / EXAMPLES for name, t in sums.items()})
    drawn = scores(model, batch, "model", seed=3)[0]
    other = {**batch, "labels": batch["labels"].masked_fill(~unknown, 1)}
    torch.testing.assert_close(scores(model, other, "model", seed=3)[0], drawn)
    assert not torch.allclose(scores(model, {**batch, "labels": answers}, "model", seed=3)[0], drawn)


@pytest.mark.parametrize(
    ("make", "batch", "labels", "message"),
    [
        (lambda: random_model("bert-model"), texts, "model", "a BertModel predicts no labels"),
        (gpt2, lambda: texts("next"), "expected", "every token of the vocabulary"),
        (
            lambda: random_model("bert-sequence"),
            lambda: {"input_ids": texts()["input_ids"]},
            "empirical",
            "no 'labels'",
        ),
        (gpt2, texts, "true", "labels is 'true'; expected one of model, expected, empirical"),
    ],
)
def test_refusals(make: Callable[[], nn.Module], batch: Callable[[], Batch], labels: str, message: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=message):
        gathered(make(), [batch()], labels=labels)


def test_models_that_predict_labels_are_told_and_left_as_they_are() -> None:
    """In eval mode, so that statistics of batches do not move, and each module in its own mode afterwards."""
    norm = nn.BatchNorm1d(3)
    model = nn.Sequential(nn.Linear(4, 3), norm, nn.Dropout(), nn.Linear(3, 5)).train()
    model[2].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert predicts(model, {"x": torch.randn(6, 4, generator=generator(0))})
    assert [module.training for module in model] == [True, True, False, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not predicts(gpt2().transformer, texts())


def test_models_of_images_and_texts_say_the_next_token() -> None:
    """Where a decoder alone writes, as transformers' own loss of such models has it."""
    text = {"model_type": "llama", "vocab_size": 20, "hidden_size": 16, "intermediate_size": 16}
    image = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 16, "image_size": 8}
    few = {"num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlavaConfig(text_config=text | few, vision_config=image | few | {"patch_size": 4}, image_token_index=19)
    model = LlavaForConditionalGeneration(config).eval()
    ids = torch.randint(1, 19, (1, 8), generator=generator(0))
    labels = ids.clone()
    labels[:, :4] = -100
    with torch.no_grad():
        (found,) = scores(model, {"input_ids": ids, "labels": labels}, "empirical")
        expected = model(input_ids=ids, labels=labels).loss * 4
    torch.testing.assert_close(-found.sum(), expected, rtol=1e-4, atol=1e-4)
