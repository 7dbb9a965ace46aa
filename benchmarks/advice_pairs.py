"""Pairs of models that are known, of seeds that nothing was chosen by: other seeds, one base, moved, resized."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas
import torch
from digits_models import digits
from same_base_models import TASKS, Task
from settings import Batch, batches
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification

import fusionlab
from fusionlab.symmetry import Alignment

# Between the seeds of two models that never met.
APART = 50
WORDS, LENGTH = 2000, 16
OF_BASE = ("one_base", "one_basis_far_apart")
# Digits whose left half, or whose every other pixel, is negative.
HELD_OUT = [task for task in TASKS if task.name in ("left half negative", "every other pixel negative")]


@dataclass(frozen=True)
class Pair:
    """Two models of a kind, with data.

    Attributes:
        kind: what they were made to be.
        seed: of the first.
        right: the cases that say so.
        models: both.
        inputs: batches to match by, without labels.
        test: labelled batches that nothing else sees.
    """

    kind: str
    seed: int
    right: tuple[str, ...]
    models: list[nn.Module]
    inputs: list[Batch]
    test: list[Batch]


def trained(model: nn.Module, inputs: list[Batch], seed: int, epochs: int, rate: float) -> nn.Module:
    """A copy after some passes over labelled batches, their samples drawn anew in each pass."""
    model, draw = copy.deepcopy(model).train(), torch.Generator().manual_seed(seed)
    samples = {name: torch.cat([batch[name] for batch in inputs]) for name in inputs[0]}
    count = len(samples["labels"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = OneCycleLR(optimizer, rate, total_steps=epochs * -(-count // 64), pct_start=0.1)
    for _ in range(epochs):
        for part in torch.randperm(count, generator=draw).split(64):
            optimizer.zero_grad()
            model(**{name: value[part] for name, value in samples.items()}).loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


# --- digits ----------------------------------------------------------------------------------------------------------


@functools.cache
def digits_model(seed: int, width: int = 48) -> nn.Module:
    """A ViT of 3 layers, 4 patches."""
    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=3, num_attention_heads=4, intermediate_size=2 * width, image_size=8,
        patch_size=4, num_channels=1, id2label=dict(enumerate("0123456789")), initializer_range=0.07,
    )  # fmt: skip
    train, _ = digits()
    return trained(ViTForImageClassification(config), batches(train, labels=True), seed, 40, 3e-3)


def other_seeds(seed: int, _: Path | None) -> Pair:
    """Two ViTs that never met."""
    train, test = digits()
    models = [digits_model(seed), digits_model(seed + APART)]
    return Pair("digits, other seeds", seed, ("other_seeds",), models, batches(train), test)


def other_widths(seed: int, _: Path | None) -> Pair:
    """Two ViTs of other seeds, 32 and 48 wide."""
    train, test = digits()
    models = [digits_model(seed, 32), digits_model(seed + APART)]
    return Pair("digits, other widths", seed, ("sizes",), models, batches(train), test)


def tuned(
    seed: int, epochs: int, rate: float, tasks: Sequence[Task] = HELD_OUT
) -> tuple[list[nn.Module], list[Batch], list[Batch]]:
    """Fine-tunes of one ViT, one on each of some tasks that change the digits' images; data of all."""
    train, test = digits()

    def changed(given: list[Batch], image: Callable[[Tensor], Tensor]) -> list[Batch]:
        return [{**batch, "pixel_values": image(batch["pixel_values"])} for batch in given]

    labelled = batches(train, labels=True)
    models = [trained(digits_model(seed), changed(labelled, task.image), seed, epochs, rate) for task in tasks]
    seen = [batch for task in tasks for batch in changed(batches(train), task.image)]
    return models, seen, [batch for task in tasks for batch in changed(test, task.image)]


def short_tuned(seed: int, _: Path | None) -> Pair:
    """Fine-tunes of five passes."""
    return Pair("digits, fine-tunes of one base", seed, OF_BASE, *tuned(seed, 5, 5e-4))


def long_tuned(seed: int, _: Path | None) -> Pair:
    """Fine-tunes of forty passes, at the rate of the training."""
    cases = (*OF_BASE, "partly_one_basis")
    return Pair("digits, long fine-tunes of one base", seed, cases, *tuned(seed, 40, 3e-3))


def moved(seed: int, _: Path | None) -> Pair:
    """Fine-tunes of one base, the first brought into a basis that is drawn."""
    (first, second), seen, test = tuned(seed, 5, 5e-4)
    drawn = Alignment.random(fusionlab.blueprint(first), torch.Generator().manual_seed(seed))
    return Pair(
        "digits, a fine-tune in a drawn basis", seed, ("other_seeds",), [drawn.apply(first), second], seen, test
    )


def renumbered(seed: int, _: Path | None) -> Pair:
    """Fine-tunes of one base, the hidden units of the first in an order that is drawn, all else as it was."""
    (first, second), seen, test = tuned(seed, 5, 5e-4)
    whole = fusionlab.blueprint(first)
    drawn = Alignment.random(whole, torch.Generator().manual_seed(seed)).elements
    units = Alignment(whole, {name: element for name, element in drawn.items() if name.endswith("ffn")})
    cases = ("partly_one_basis",)
    return Pair("digits, a fine-tune's units renumbered", seed, cases, [units.apply(first), second], seen, test)


# --- text ------------------------------------------------------------------------------------------------------------


@functools.cache
def sentences(path: Path) -> tuple[list[Batch], list[Batch]]:
    """Batches of 64 sentences of six words and more of the training split, and the validation split."""
    frame = pandas.read_parquet(path)
    count = Counter(word for text in frame[frame.split == "train"].sentence for word in text.split())
    known = {word: place + 2 for place, (word, _) in enumerate(count.most_common(WORDS - 2))}

    def encoded(kept: pandas.DataFrame) -> list[Batch]:
        rows = [[known.get(word, 1) for word in text.split()][:LENGTH] for text in kept.sentence]
        ids = torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])
        columns = {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor(kept.label.to_numpy())}
        parts = {name: value.split(64) for name, value in columns.items()}
        return [dict(zip(parts, one, strict=True)) for one in zip(*parts.values(), strict=True)]

    train = frame[frame.split == "train"]
    # Phrases of a few words are most of the split, and tell little.
    long = train[train.sentence.str.split().str.len() >= 6].sample(12_000, random_state=0)
    return encoded(long), encoded(frame[frame.split == "validation"])


def fresh_bert(seed: int) -> nn.Module:
    """A BERT of two layers, 64 wide."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=LENGTH, initializer_range=0.07, hidden_dropout_prob=0.1,
    )  # fmt: skip
    return BertForSequenceClassification(config)


@functools.cache
def text_model(seed: int, path: Path) -> nn.Module:
    """A BERT that was trained on the first two thirds of the sentences."""
    train, _ = sentences(path)
    return trained(fresh_bert(seed), train[:124], seed, 6, 1e-3)


def unlabelled(given: list[Batch]) -> list[Batch]:
    """The batches without labels."""
    return [{name: value for name, value in batch.items() if name != "labels"} for batch in given]


def text_seeds(seed: int, path: Path | None) -> Pair:
    """Two BERTs that never met."""
    assert path is not None
    train, test = sentences(path)
    models = [text_model(seed, path), text_model(seed + APART, path)]
    return Pair("text, other seeds", seed, ("other_seeds",), models, unlabelled(train[:32]), test)


def text_tuned(seed: int, path: Path | None) -> Pair:
    """A BERT that went on on two other parts of the sentences."""
    assert path is not None
    train, test = sentences(path)
    base = text_model(seed, path)
    models = [trained(base, part, seed, 4, 1e-3) for part in (train[124:156], train[156:])]
    return Pair("text, fine-tunes of one base", seed, OF_BASE, models, unlabelled(train[:32]), test)


KINDS: dict[str, Callable[[int, Path | None], Pair]] = {
    "seeds": other_seeds,
    "tuned": short_tuned,
    "long": long_tuned,
    "moved": moved,
    "renumbered": renumbered,
    "widths": other_widths,
    "text_seeds": text_seeds,
    "text_tuned": text_tuned,
}
