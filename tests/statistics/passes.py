"""Passes over data for the tests of statistics: real model classes, data with padding, a quiet Trainer."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from fusionlab.forward import forward
from fusionlab.statistics import Activations, Grams, Statistics
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import blueprint
from fusionlab.symmetry.float64 import InFloat64
from tests.families import (
    cases_bert,
    cases_deberta,
    cases_encoders,
    cases_gpt,
    cases_llama,
    cases_seq2seq,
    cases_vision,
    cases_vit,
)
from tests.families.harness import Case, random_model

Batch = dict[str, Tensor]
FAMILIES = (
    cases_bert, cases_deberta, cases_encoders, cases_gpt, cases_llama, cases_seq2seq, cases_vision, cases_vit
)  # fmt: skip
CASES: dict[str, Case] = {case.name: case for family in FAMILIES for case in family.CASES}


def trainer(**options: Any) -> Trainer:
    """A Trainer on the CPU that says nothing."""
    return Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        **options,
    )


def model_of(name: str, seed: int = 0) -> nn.Module:
    """A model of the families' tables, float64, every parameter random."""
    return random_model(CASES[name], seed)


def passed(model: nn.Module, batches: Iterable[Batch], *kinds: str, **settings: Any) -> dict[str, Statistics]:
    """Statistics from one quiet pass in float64."""
    with InFloat64():
        return gather(model, batches, kinds or ("gram",), trainer=trainer, **settings)


def grams_of(model: nn.Module, batches: Iterable[Batch]) -> Grams:
    found = passed(model, batches)["gram"]
    assert isinstance(found, Grams)
    return found


def activations_of(model: nn.Module, batches: Iterable[Batch], **settings: Any) -> Activations:
    found = passed(model, batches, "activations", **settings)["activations"]
    assert isinstance(found, Activations)
    return found


def examples_for(model: nn.Module, count: int = 5, seed: int = 3) -> list[Batch]:
    """Examples of one row each, without padding; texts have 4 to 8 tokens (two-sided models 3 to 7 for the decoder)."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for index in range(count):
        example = {i.name: i.random(1, draw) for i in blueprint(model).inputs}
        for name, value in example.items():
            if name.endswith("input_ids"):
                length = (3 if name.startswith("decoder") else 4) + (
                    index * (2 if name.startswith("decoder") else 3)
                ) % 5
                example[name] = value[:, -length:]
        found.append(example)
    return found


def batched(examples: Sequence[Batch], size: int, extra: int = 0) -> list[Batch]:
    """Batches of some examples, texts padded on the right to the longest and `extra` more, with masks."""
    return [_together(examples[start : start + size], extra) for start in range(0, len(examples), size)]


def _together(examples: Sequence[Batch], extra: int) -> Batch:
    batch: Batch = {}
    for name in examples[0]:
        values = [example[name] for example in examples]
        if not name.endswith("input_ids"):
            batch[name] = torch.cat(values)
            continue
        length = max(value.shape[1] for value in values) + extra
        batch[name] = torch.cat([nn.functional.pad(v, (0, length - v.shape[1]), value=1) for v in values])
        mask = torch.stack([torch.arange(length) < value.shape[1] for value in values]).long()
        batch[name.replace("input_ids", "attention_mask")] = mask
    return batch


def inputs_by_hand(
    model: nn.Module, examples: Iterable[Batch], is_data: Callable[[Tensor, Mapping[str, Tensor]], bool]
) -> dict[str, Tensor]:
    """What every linear map reads, by its weight's name, one example at a time without padding: ``(rows, features)``.

    Args:
        is_data: tells what a map reads of an example from what it reads of something else.
    """
    rows: dict[str, list[Tensor]] = {}
    model = copy.deepcopy(model)
    current: Batch = {}

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            (value,) = args
            if isinstance(module, nn.Conv2d):
                value = patches(value, module.kernel_size[0])
            if is_data(value, current):
                rows.setdefault(name, []).append(value.reshape(-1, value.shape[-1]).clone())

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | Conv1D | nn.Conv2d):
            module.register_forward_pre_hook(note(f"{name}.weight"))
    with torch.no_grad(), InFloat64():
        for example in examples:
            current.clear()
            current.update(example)
            forward(model, example)
    return {name: torch.cat(found) for name, found in rows.items()}


def patches(pixels: Tensor, size: int) -> Tensor:
    """The squares of an image as rows, channels first: ``(batch, squares, channels * size * size)``."""
    batch, channels, height, width = pixels.shape
    cut = pixels.reshape(batch, channels, height // size, size, width // size, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * size * size)
