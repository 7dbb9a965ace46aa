"""Squared gradients of single examples from one batched pass: whatever the batches and the architecture."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    SwinConfig,
    SwinForImageClassification,
)

from fusionlab.statistics.likelihood import scores
from fusionlab.statistics.per_example import one_by_one
from fusionlab.symmetry.float64 import InFloat64
from tests.parts import one_in
from tests.statistics.fishers import (
    CLASSES,
    EXAMPLES,
    MODELS,
    PADDING,
    SIZES,
    Batch,
    assert_equal,
    brute_force,
    gathered,
    split,
    t5,
    texts,
    translations,
)
from tests.symmetry.models import generator, laws, random_model, randomize

BATCHED = [(name, labels) for name in MODELS for labels in ("model", "empirical")]


@pytest.mark.parametrize(
    ("name", "labels"), [*one_in(3, BATCHED), ("roberta-sequence", "expected"), ("bert-token", "expected")]
)
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
    "t5": lambda: (t5(), translations()),
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


def test_the_row_of_the_padding_token_is_never_differentiated() -> None:
    """An embedding with a padding token has no gradient there, also where the token is read like any other."""
    model = random_model("bert-sequence")
    words = model.bert.embeddings.word_embeddings
    batch = texts()
    batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    batch["input_ids"] = batch["input_ids"].masked_fill(batch["input_ids"] == PADDING, words.padding_idx)
    assert bool((batch["input_ids"] == words.padding_idx).any())
    found = gathered(model, [batch], labels="empirical")
    assert found.settings["gradients"] == "batched"
    assert_equal(found, brute_force(model, batch, "empirical"))
    rows = found.diagonal["bert.embeddings.word_embeddings.weight"].sum(1)
    assert rows[words.padding_idx] == 0
    assert bool((rows[batch["input_ids"][batch["input_ids"] != words.padding_idx]] > 0).all())


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


class Rescaled(nn.Module):
    """Looks its tokens up in a table that rescales its rows, or their gradients by how often they come in a batch."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(4, 3, **options), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words((x > 0).long() @ torch.tensor([1, 2, 0])).tanh().mean(1))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (TokensFirst, "batched gradients of inner"),
        (Unknown, "einsum"),
        (partial(Rescaled, max_norm=0.5), "embedding that rescales"),
        (partial(Rescaled, scale_grad_by_freq=True), "embedding that rescales"),
    ],
    ids=["tokens-first", "einsum", "max-norm", "by-frequency"],
)
def test_falls_back_to_examples_one_by_one(kind: Callable[[], nn.Module], reason: str) -> None:
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
