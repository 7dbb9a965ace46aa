"""A small and a large end model each of CIFAR-10 and of bytes of Shakespeare, and what is looked at with them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from gpu_models import Training
from settings import Batch, batches, ready
from torch import nn
from trained_rows import CIFAR_DEVIATION, CIFAR_MEAN
from transformers import AutoModelForImageClassification

import fusionlab
from fusionlab.data import Images, LanguageModelling
from fusionlab.models import untie

# Layers, heads and width.
Sizes = tuple[int, int, int]
# Epochs of the small ones, as many as the given ones had.
SMALL_VIT, VIT_EPOCHS = (4, 4, 64), 14
GPT2_SMALL, GPT2_LARGE, GPT2_EPOCHS, CONTEXT = (2, 4, 256), (2, 8, 512), 1, 64
TUNING_SMALL, TUNING_LARGE = (2, 2, 64), (2, 4, 128)
# Rows of the images that the given ViTs were trained on, of those to match with, and of those they were tested on.
TRAINED_ROWS, LOOKED_AT, TESTED_ROWS = 30_000, 15_000, 4_000
# Blocks of text to match with, in one batch of learning, and to test on.
BLOCKS, BLOCKS_AT_ONCE, TESTED_BLOCKS = 4_000, 32, 400
# What --small makes of sizes; those of given ViTs stay.
TINY, TINY_LARGE = (1, 2, 8), (1, 4, 16)


class MissingError(Exception):
    """Files that a pair needs are not there."""


@dataclass(frozen=True)
class Looked:
    """What a pair is matched with and measured on.

    Attributes:
        inputs: without labels, of the training split.
        test: with labels; nothing else sees them.
        batch_size: of learning and of distillation.
        precision: of their passes.
    """

    inputs: list[Batch]
    test: list[Batch]
    batch_size: int
    precision: str


class Vits:
    """Small ViTs that are trained here, each with one of two large ones that were trained elsewhere.

    Args:
        args: of the command: ``cifar``, ``vits``, ``models``, ``small``.

    Raises:
        MissingError: a file is not there.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.folders = [Path(folder) for folder in args.vits]
        for option, path in (("--cifar", Path(args.cifar)), *(("--vits", folder) for folder in self.folders)):
            _refuse_missing(option, path)
        self.small, self.models = args.small, args.models
        rows, tests = (24, 16) if args.small else (TRAINED_ROWS, TESTED_ROWS)
        self.data: dict[str, Any] = {
            "path": str(args.cifar), "image_column": "image", "label_column": "label", "val_size": 0,
            "train_split": f"train[:{rows}]", "test_split": f"test[:{tests}]", "mean": CIFAR_MEAN,
            "std": CIFAR_DEVIATION, "image_size": 32, "batch_size": 8 if args.small else 128,
        }  # fmt: skip

    def ends(self, column: str) -> list[nn.Module]:
        """The small model and a large one.

        Args:
            column: the seed of the small one, whose large ones take turns.
        """
        large: Any = fusionlab.load(self.folders[COLUMNS["cifar"].index(column) % len(self.folders)])
        # Where epsilons differ no embedding is exact, so the small one takes the other's.
        small = AutoModelForImageClassification.from_pretrained(
            self._small(int(column)), layer_norm_eps=large.config.layer_norm_eps
        )
        return [small, large]

    def _small(self, seed: int) -> Path:
        sizes = TINY if self.small else SMALL_VIT
        training = Training(
            "vit_cifar10.yaml", sizes, self.data, 1 if self.small else VIT_EPOCHS, seed=seed,
            fields={"intermediate_size": 2 * sizes[-1]},
        )  # fmt: skip
        folder = self.models / f"vit_small_seed_{seed}"
        _trained(training, folder)
        return folder / "model"

    @cached_property
    def looked(self) -> Looked:
        """Images that all were trained on, without labels and as they are; the test images."""
        images = Images(**self.data, augment=False)
        images.setup("fit")
        images.setup("test")
        test = batches(images.test_dataloader(), labels=True)
        return Looked(batches(images.train_dataloader(), LOOKED_AT), test, 128, "32-true")


class Gpt2s:
    """Pairs of GPT-2s of two widths that are trained here, byte by byte.

    Attributes:
        sizes: of the small model and of the large one.
        split: of the text that they are measured on.

    Args:
        args: of the command: ``shakespeare``, ``models``, ``small``.

    Raises:
        MissingError: the file is not there.
    """

    sizes: tuple[Sizes, Sizes] = (GPT2_SMALL, GPT2_LARGE)
    split: Literal["test", "validation"] = "test"

    def __init__(self, args: argparse.Namespace) -> None:
        _refuse_missing("--shakespeare", Path(args.shakespeare))
        self.small, self.models = args.small, args.models
        self.data: dict[str, Any] = {
            "path": str(args.shakespeare), "val_split": None, "max_length": 16 if args.small else CONTEXT,
            "limit": None,
        }  # fmt: skip

    def ends(self, column: str) -> list[nn.Module]:
        """The small model and the large one.

        Args:
            column: ``tied`` for models as they were trained, ``untied`` for input and output embeddings of their own;
                behind it, with a hyphen, the number of another pair than the first.
        """
        how, _, number = column.partition("-")
        tied = self._tied(["small", "large"], 2 * int(number or 1) - 2)
        return tied if how == "tied" else [untie(model) for model in tied]

    def _tied(self, names: Sequence[str], first: int) -> list[nn.Module]:
        """Both models of a pair, the small one by the first seed and the large one by the next."""
        sizes = (TINY, TINY_LARGE) if self.small else self.sizes
        return [
            _trained(self._training(size, seed), self.models / f"gpt2_{name}_seed_{seed}")
            for seed, (name, size) in enumerate(zip(names, sizes, strict=True), first)
        ]

    def _training(self, size: Sizes, seed: int) -> Training:
        dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        fields = {"n_positions": self.data["max_length"], **dropouts}
        epochs = 1 if self.small else GPT2_EPOCHS
        return Training("gpt2_shakespeare.yaml", size, self.data, epochs, seed, fields, "bf16-mixed")

    @cached_property
    def looked(self) -> Looked:
        """Blocks of the training text, without labels; blocks of the test text."""
        data = {**self.data, "val_split": self.split if self.split == "validation" else None}
        text: Any = LanguageModelling(
            text_column="text", split_column="split", tokenizer="bytes", masked=False, separator="\n\n", **data
        )
        ready(text)
        count, tests = (8, 8) if self.small else (BLOCKS, TESTED_BLOCKS)
        measured = text.test_dataloader() if self.split == "test" else text.val_dataloader()
        test = batches(measured, tests, labels=True)
        return Looked(batches(text.train_dataloader(), count), test, BLOCKS_AT_ONCE, "bf16-mixed")


class TuningGpt2s(Gpt2s):
    """Smaller pairs, which settings are chosen on: measured on the validation text."""

    sizes = (TUNING_SMALL, TUNING_LARGE)
    split = "validation"

    def ends(self, column: str) -> list[nn.Module]:
        """The small model and the large one.

        Args:
            column: the seed of the small one; that of the large one is one more.
        """
        return self._tied(["tuning_small", "tuning_large"], int(column))


def _trained(training: Training, folder: Path) -> nn.Module:
    """An end model, trained where it is not in its folder; a training that was stopped goes on after its last epoch."""
    training.goes_on(folder, "cpu", math.inf)
    return training.load(folder)


def _refuse_missing(option: str, path: Path) -> None:
    if not path.exists():
        raise MissingError(f"{option} {path} does not exist")


KINDS: dict[str, type[Vits | Gpt2s]] = {"cifar": Vits, "gpt2": Gpt2s, "tuning": TuningGpt2s}
# Of CIFAR-10 and of tuning pairs the seeds of the small models; all of CIFAR-10 differ from those of the large ones.
COLUMNS: dict[str, Sequence[str]] = {
    "cifar": ("3", "4", "5", "6", "7"),
    "gpt2": ("tied", "tied-2", "tied-3", "untied", "untied-2", "untied-3"),
    "tuning": ("90", "92"),
}
