"""Rows on convolutions: ResNets of 20 layers from two seeds, on digits at several widths and on CIFAR-10."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from lightning.pytorch import seed_everything
from settings import POINTS, Batch, Line, Models, Setting, batches
from torch import nn

import fusionlab
import fusionlab.tasks
from fusionlab import configs
from fusionlab.batch_norm import remeasured
from fusionlab.data import Digits, Images
from fusionlab.merging import merge_states
from fusionlab.merging.correction import correct
from fusionlab.models import with_state
from fusionlab.trainers import quiet_trainer

# Batches of 128 that running statistics are measured on, and a correction.
MEASURED = 8
# By the preset, the name of the row.
MATCHINGS = {
    "none": "unmatched",
    "git-rebasin": "permutations (Git Re-Basin)",
    "weights": "weights",
    "activations": "activations",
    "correlation": "correlation (as REPAIR matches)",
}
LOOK = ("activations", "correlation")


def settings_of(name: str) -> dict[str, Any]:
    """A shipped config."""
    found: dict[str, Any] = yaml.safe_load(configs.resolve(name).read_text(encoding="utf-8"))
    return found


@functools.cache
def digits_resnet(seed: int, factor: int) -> nn.Module:
    """An end model of ``resnet_digits.yaml``, of another seed and so many times the width."""
    settings = settings_of("resnet_digits.yaml")
    task = settings["model"]["init_args"]
    task["model"]["embedding_size"] *= factor
    task["model"]["hidden_sizes"] = [factor * size for size in task["model"]["hidden_sizes"]]
    seed_everything(seed, verbose=False)
    module = fusionlab.tasks.ImageClassification(**task)
    data, epochs = Digits(**settings["data"]["init_args"]), settings["trainer"]["max_epochs"]
    quiet_trainer(max_epochs=epochs, accelerator="cpu", limit_val_batches=0).fit(module, datamodule=data)
    return module.model.eval()


def every_merge(setting: Setting, inputs: Sequence[Batch]) -> Iterator[Line]:
    """The end models, then for each matching the mean with averaged and measured running statistics, and corrected.

    Barriers are of points with statistics of their own, or corrected, as the papers draw them.
    """
    yield setting.end_models()
    (pair,) = setting.groups
    seen = list(inputs[:MEASURED])
    for preset, name in MATCHINGS.items():
        start = time.perf_counter()
        looked: dict[str, Any] = {"data": inputs} if preset in LOOK else {}
        twins = list(fusionlab.align(pair, anchor=1, preset=preset, **looked))
        merge = with_state(pair[-1], merge_states([twin.state_dict() for twin in twins]))
        yield _line(setting, f"{name}, averaged statistics", merge, [], time.perf_counter() - start)
        start = time.perf_counter()
        measured = remeasured(merge, seen)
        seconds = time.perf_counter() - start
        yield _line(setting, f"{name}, measured", measured, [_barrier(setting, twins, seen, False)], seconds)
        start = time.perf_counter()
        corrected = correct(merge, twins, seen)
        seconds = time.perf_counter() - start
        rise = setting_loss(setting, corrected) - fmean(setting_loss(setting, twin) for twin in twins)
        yield _line(setting, f"{name}, REPAIR", corrected, [rise], seconds)


def _line(setting: Setting, variant: str, model: nn.Module, barriers: Sequence[float], seconds: float) -> Line:
    return setting.line(variant, [setting.measure(model)], barriers, seconds)


def _barrier(setting: Setting, twins: Models, inputs: list[Batch], corrected: bool) -> float:
    first, second = twins
    return fusionlab.barrier(second, first, setting.test, POINTS, inputs, corrected).barrier


def setting_loss(setting: Setting, model: nn.Module) -> float:
    """The loss on the test batches."""
    return Setting(setting.name, setting.groups, setting.test, "loss").measure(model)


def resnets(args: argparse.Namespace) -> Iterator[Line]:
    """Two ResNets on digits for each of the widths; all 1,400 training images to look at."""
    data = Digits(**settings_of("resnet_digits.yaml")["data"]["init_args"] | {"val_size": 0})
    inputs, test = batches(data.train_dataloader()), batches(data.test_dataloader(), labels=True)
    for factor in args.factors:
        pair = [digits_resnet(seed, factor) for seed in (1, 2)]
        yield from every_merge(Setting(f"digits, ResNet-20 of {factor}x the width", [pair], test), inputs)


def resnets_cifar(args: argparse.Namespace) -> Iterator[Line]:
    """Two ResNets on CIFAR-10, trained before by ``resnet_cifar10.yaml``; 2,048 training images to look at."""
    pair = [fusionlab.load(Path(folder)) for folder in args.resnets]
    how = settings_of("resnet_cifar10.yaml")["data"]["init_args"]
    pixels: Any = Images(
        args.cifar, image_column="image", label_column="label", split_column="split",
        mean=how["mean"], std=how["std"], image_size=how["image_size"], augment=False, batch_size=128,
    )  # fmt: skip
    pixels.setup("fit")
    inputs, test = batches(pixels.train_dataloader(), 2_048), batches(pixels.test_dataloader(), 2_000, labels=True)
    yield from every_merge(Setting("CIFAR-10, ResNet-20", [pair], test), inputs)
