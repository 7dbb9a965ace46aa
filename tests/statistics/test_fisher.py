"""Diagonal Fisher information against backward passes of single examples, on real models in float64."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    SwinConfig,
    SwinForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from fusionlab.errors import InputError
from fusionlab.forward import InFloat64, logits
from fusionlab.statistics.fisher import FisherAccumulator
from fusionlab.statistics.gather import gather
from fusionlab.statistics.likelihood import scores
from fusionlab.statistics.per_example import one_by_one
from fusionlab.statistics.statistics import Fisher
from tests.symmetry.models import HEADS, HIDDEN, INTERMEDIATE, LAYERS, generator, laws, random_model, randomize
from tests.symmetry.models import text_config as config_of

Batch = dict[str, Tensor]
EXAMPLES, TOKENS, CLASSES, VOCABULARY, PADDING = 5, 7, 5, 31, 1
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INTERMEDIATE,
    "max_position_embeddings": 20,
}


def gpt2() -> nn.Module:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=20,
        bos_token_id=0,
        eos_token_id=0,
    )
    return randomize(GPT2LMHeadModel(config), 0)


def images() -> Batch:
    pixels = torch.randn(EXAMPLES, 3, 12, 12, generator=generator(3), dtype=torch.float64)
    return {"pixel_values": pixels, "labels": torch.tensor([0, 3, 3, 1, 4])}


def texts(labels: str = "sequence") -> Batch:
    """Five texts of 7, 6, 3, 5 and 7 tokens, padded on the right; a label each, one for each token, or the tokens."""
    draw = generator(4)
    ids = torch.randint(4, VOCABULARY, (EXAMPLES, TOKENS), generator=draw)
    mask = torch.arange(TOKENS) < torch.tensor([7, 6, 3, 5, 7])[:, None]
    ids[~mask] = PADDING
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    if labels == "sequence":
        return {**batch, "labels": torch.tensor([0, 3, 3, 1, 4])}
    if labels == "next":
        return {**batch, "labels": ids.masked_fill(~mask, -100)}
    # As for words of several tokens: only some count.
    targets = torch.randint(CLASSES, ids.shape, generator=draw)
    return {**batch, "labels": targets.masked_fill(~mask | (torch.rand(ids.shape, generator=draw) < 0.4), -100)}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "roberta-sequence": (lambda: random_model("roberta-sequence"), texts),
    "bert-sequence": (lambda: random_model("bert-sequence"), texts),
    "bert-token": (lambda: random_model("bert-token"), lambda: texts("tokens")),
    "vit": (lambda: random_model("vit-classifier"), images),
    "timm-vit": (lambda: random_model("timm-plain"), images),
    "gpt2": (gpt2, lambda: texts("next")),
}


def take(batch: Batch, start: int, stop: int) -> Batch:
    """Some examples, without the padding that they do not need."""
    part = {name: value[start:stop] for name, value in batch.items()}
    if "attention_mask" not in part:
        return part
    longest = int(part["attention_mask"].sum(1).max())
    tokens = part["attention_mask"].shape
    return {name: value[:, :longest] if value.shape == tokens else value for name, value in part.items()}


def split(batch: Batch, sizes: list[int]) -> Iterator[Batch]:
    ends = list(itertools.accumulate(sizes))
    return (take(batch, end - size, end) for size, end in zip(sizes, ends, strict=True))


def gathered(model: nn.Module, batches: Iterator[Batch] | list[Batch], **settings: Any) -> Fisher:
    found = FisherAccumulator(**settings)
    found.start(model)
    examples = 0
    with InFloat64():
        for batch in batches:
            found.update(model, batch)
            examples += len(next(iter(batch.values())))
    return found.finish(found.sums(), {"architecture": "", "basis": "", "examples": examples, "settings": {}})


def assert_equal(found: Fisher, expected: dict[str, Tensor], tolerance: float = 1e-11) -> None:
    """To rounding, relative to each parameter's largest value; parameters without a gradient are left out."""
    assert set(found.diagonal) == {name for name, tensor in expected.items() if tensor.any()}
    largest = max(float(tensor.max()) for tensor in expected.values())
    for name, tensor in found.diagonal.items():
        # A key bias has no gradient but rounding.
        scale = max(float(expected[name].max()), 1e-12 * largest)
        torch.testing.assert_close(tensor / scale, expected[name] / scale, rtol=0, atol=tolerance, msg=name)


# The reference: one example at a time, without padding, one number differentiated at a time


def squares(model: nn.Module, number: Tensor, sums: dict[str, Tensor], weight: float = 1.0) -> None:
    model.zero_grad()
    number.backward(retain_graph=True)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.grad is not None:
            sums[name] += weight * parameter.grad.square()
    model.zero_grad()


def log_probabilities(model: nn.Module, single: Batch) -> tuple[Tensor, list[int]]:
    """Of one example, shape ``(places, classes)``, and the label at each place that counts; -100 is not taken."""
    outputs, labels = logits(model, single)[0].log_softmax(-1), single["labels"][0]
    if outputs.ndim == 1:
        return outputs[None], [int(labels)]
    if isinstance(model, GPT2LMHeadModel):
        outputs, labels = outputs[:-1], labels[1:]
    return outputs[labels != -100], labels[labels != -100].tolist()


def brute_force(
    model: nn.Module, batch: Batch, labels: str, chosen: list[list[int]] | None = None
) -> dict[str, Tensor]:
    """Single-example backward passes, averaged; `chosen` takes the place of the batch's labels."""
    sums = {name: torch.zeros_like(p) for name, p in model.named_parameters(remove_duplicate=False)}
    for index in range(EXAMPLES):
        found, own = log_probabilities(model, take(batch, index, index + 1))
        if labels == "empirical":
            own = own if chosen is None else chosen[index]
            squares(model, found[range(len(own)), own].sum(), sums)
            continue
        for place in found:
            for label in place:
                squares(model, label, sums, float(label.detach().exp()))
    return {name: tensor / EXAMPLES for name, tensor in sums.items()}


@pytest.mark.parametrize("name", MODELS)
def test_true_labels(name: str) -> None:
    """Mode ``empirical`` is the mean square of the gradients that the true labels give, one example at a time."""
    model, batch = (make() for make in MODELS[name])
    found = gathered(model, [batch], labels="empirical")
    assert found.settings["gradients"] == "batched"
    assert_equal(found, brute_force(model, batch, "empirical"))


@pytest.mark.parametrize("name", ["roberta-sequence", "bert-sequence", "bert-token", "vit", "timm-vit"])
def test_all_classes(name: str) -> None:
    """Mode ``expected`` is every class's square, weighted by its probability, summed over the tokens that count."""
    model, batch = (make() for make in MODELS[name])
    found = gathered(model, [batch], labels="expected")
    assert found.settings["gradients"] == "batched"
    assert_equal(found, brute_force(model, batch, "expected"))


@pytest.mark.parametrize("name", MODELS)
def test_labels_from_the_model(name: str) -> None:
    """Mode ``model`` is mode ``empirical`` for some labels: those whose log-likelihood its score is."""
    model, batch = (make() for make in MODELS[name])
    if name == "gpt2":
        # Three tokens, so that 31^2 labels can be tried.
        batch = {key: value[:, :3].clone() for key, value in batch.items()}
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


BATCHED = [(name, labels) for name in MODELS for labels in ("model", "empirical")]


@pytest.mark.parametrize(("name", "labels"), [*BATCHED, ("roberta-sequence", "expected"), ("bert-token", "expected")])
def test_batch_size_does_not_matter(name: str, labels: str) -> None:
    """One batch, batches of one, and batches of two and three, each padded to its own longest, in another order."""
    model, batch = (make() for make in MODELS[name])
    whole = gathered(model, [batch], labels=labels)
    for sizes in ([1] * 5, [2, 3]):
        parts = list(split(batch, sizes))
        assert_equal(gathered(model, parts[::-1], labels=labels), dict(whole.diagonal))


@settings(parent=laws, max_examples=12)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 100))
def test_any_partition_into_batches(sizes: list[int], seed: int) -> None:
    """However the same images are put into batches, the same labels are drawn and the same squares added."""
    layers = nn.Sequential(nn.Conv2d(2, 3, 2, 2), nn.Flatten(), nn.Linear(12, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    model = randomize(layers, seed)
    batch = {"x": torch.randn(sum(sizes), 2, 4, 4, generator=generator(seed), dtype=torch.float64)}
    whole = gathered(model, [batch])
    assert_equal(gathered(model, split(batch, sizes)), dict(whole.diagonal))


# Architectures that share parameters, or compute with parameters before an example comes in


def t5() -> tuple[nn.Module, Batch]:
    config = T5Config(
        vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=8, d_ff=40, num_layers=2, num_heads=3, decoder_start_token_id=0
    )
    targets = torch.randint(4, VOCABULARY, (EXAMPLES, 4), generator=generator(5))
    decoded = {"decoder_input_ids": targets.roll(1, 1), "labels": targets}
    return T5ForConditionalGeneration(config), {**texts(), **decoded}


def deberta(shared: bool) -> tuple[nn.Module, Batch]:
    config = DebertaV2Config(
        **SIZES,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        share_att_key=shared,
        position_buckets=4,
        norm_rel_ebd="layer_norm",
        num_labels=CLASSES,
    )
    return DebertaV2ForSequenceClassification(config), texts()


def swin() -> tuple[nn.Module, Batch]:
    config = SwinConfig(image_size=16, patch_size=2, embed_dim=12, depths=[2, 2], num_heads=[2, 4], window_size=4)
    pixels = torch.randn(EXAMPLES, 3, 16, 16, generator=generator(5), dtype=torch.float64)
    return SwinForImageClassification(config), {"pixel_values": pixels}


OTHERS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "albert": lambda: (
        AlbertForSequenceClassification(AlbertConfig(embedding_size=8, num_labels=CLASSES, **SIZES)),
        texts(),
    ),
    "deberta-shared": lambda: deberta(True),
    "deberta": lambda: deberta(False),
    "llama-tied": lambda: (
        LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=1, head_dim=8, tie_word_embeddings=True)),
        texts("next"),
    ),
    "modernbert": lambda: (
        ModernBertForSequenceClassification(
            ModernBertConfig(
                **SIZES,
                pad_token_id=1,
                bos_token_id=2,
                eos_token_id=3,
                cls_token_id=2,
                sep_token_id=3,
                num_labels=CLASSES,
            )
        ),
        texts(),
    ),
    "swin": swin,
    "t5": t5,
}


@pytest.mark.parametrize("name", OTHERS)
def test_shared_and_computed_parameters(name: str) -> None:
    """The batched pass knows these architectures too, and gives what examples one by one give."""
    model, batch = OTHERS[name]()
    model = randomize(model, 1)
    found = gathered(model, [batch])
    assert found.settings["gradients"] == "batched"
    sums = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    with InFloat64():
        one_by_one(model, batch, lambda m, b: scores(m, b, "model"), sums)
    names = {id(p): n for n, p in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    assert_equal(found, {n: sums[names[id(p)]] / EXAMPLES for n, p in every})


def test_tied_parameters_have_one_fisher_under_both_names() -> None:
    """The gradients of both uses are summed before they are squared: not the sum of two Fishers."""
    model, batch = gpt2(), texts("next")
    diagonal = gathered(model, [batch], labels="empirical").diagonal
    assert torch.equal(diagonal["lm_head.weight"], diagonal["transformer.wte.weight"])
    untied = gpt2()
    untied.lm_head.weight = nn.Parameter(untied.lm_head.weight.detach().clone())
    untied.config.tie_word_embeddings = False
    apart = gathered(untied, [batch], labels="empirical").diagonal
    total = apart["lm_head.weight"] + apart["transformer.wte.weight"]
    assert not torch.allclose(diagonal["lm_head.weight"], total)


# Where the shortcut does not hold


class TokensFirst(nn.Module):
    """Dimension 0 of what its linear map reads are tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.transpose(0, 1)).tanh().mean(0))


class Unknown(nn.Module):
    """Uses a parameter in a way that has no formula."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("btd,de->be", x, self.weight)


@pytest.mark.parametrize(("kind", "reason"), [(TokensFirst, "batched gradients of inner"), (Unknown, "einsum")])
def test_falls_back_to_examples_one_by_one(kind: type[nn.Module], reason: str) -> None:
    """Examples that are not where they are expected, and unknown functions: noticed, said, and right all the same."""
    model = randomize(kind(), 0)
    batch = {
        "x": torch.randn(EXAMPLES, 4, 3, generator=generator(0), dtype=torch.float64),
        "labels": torch.tensor([0, 1, 2, 1, 0]),
    }
    found = gathered(model, [batch], labels="empirical")
    assert found.settings["gradients"].startswith("one by one")
    assert reason in found.settings["gradients"]
    assert_equal(found, brute_force(model, batch, "empirical"))


# Other likelihoods, types, refusals


def test_gathered_by_the_trainer() -> None:
    """A pass of the Trainer gives the same, tied to the model, even where the Trainer works in bfloat16."""
    model, batch = random_model("bert-sequence").float(), texts()
    expected = gathered(model, [batch], labels="model", seed=2)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    for precision in ("32-true", "bf16-mixed"):
        found = gather(
            model,
            list(split(batch, [2, 3])),
            ["fisher"],
            trainer=lambda precision=precision: Trainer(precision=precision, **quiet),
            labels="model",
            seed=2,
        )["fisher"]
        assert isinstance(found, Fisher)
        found.check(model.state_dict())
        assert found.examples == EXAMPLES
        assert {"labels": "model", "seed": "2", "gradients": "batched"}.items() <= found.settings.items()
        assert_equal(found, dict(expected.diagonal), tolerance=1e-4)


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


def test_half_precision_is_differentiated_in_float32() -> None:
    """A bfloat16 model has the Fisher information of the same numbers in float32."""
    half = random_model("bert-sequence").bfloat16()
    found, expected = (
        gathered(model, [texts()], labels="empirical")
        for model in (half, random_model("bert-sequence").bfloat16().float())
    )
    assert {tensor.dtype for tensor in found.diagonal.values()} == {torch.float32}
    assert all(torch.equal(found.diagonal[name], expected.diagonal[name]) for name in expected.diagonal)


def test_the_model_is_left_alone() -> None:
    """Parameters, gradients and what is frozen stay as they were; frozen parameters have Fisher information too."""
    model = random_model("bert-sequence")
    model.bert.embeddings.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = gathered(model, [texts()])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.bert.embeddings.word_embeddings.weight.requires_grad
    assert "bert.embeddings.word_embeddings.weight" in found.diagonal


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
