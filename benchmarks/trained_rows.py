"""Rows on end models that take minutes to train: each is a checkpoint, made by `fusionlab fit` where it is missing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from settings import Batch, Line, Setting, batches, ready
from torch import nn

import fusionlab
from fusionlab import cli, configs
from fusionlab.data import Images, LanguageModelling
from fusionlab.inputs import Inputs
from fusionlab.models import untie
from fusionlab.probes import probes
from fusionlab.probes.probes import GENERATED

MATCHINGS = ("none", "paper", "git-rebasin", "weights", "activations", "learned")
# Learned matching without data, on texts that the models write.
WRITTEN = "written"
CIFAR_MEAN, CIFAR_DEVIATION = [0.4734] * 3, [0.2516] * 3


def trained(config: str, seed: int) -> nn.Module:
    """The end model of a shipped config and a seed, in the folder ``checkpoints``."""
    output = Path("checkpoints") / f"{Path(config).stem}_seed{seed}"
    if not output.exists():
        command = ["fit", "--config", config, "--seed", str(seed), "--trainer.callbacks.output", str(output)]
        if cli.main(command) != 0:
            raise SystemExit(f"fusionlab {' '.join(command)} failed")
    return fusionlab.load(output)


def text(config: str, inputs: int | None, tests: int, stride: int | None = None) -> tuple[list[Batch], list[Batch]]:
    """Training blocks without labels, and test blocks with them, of a config's data.

    Args:
        config: a shipped one.
        inputs: at most so many training blocks, the first; all if None.
        tests: the same of test blocks.
        stride: tokens from the start of one training block to the next, in a mixed order; side by side, in their own,
            if None.
    """
    settings = yaml.safe_load(configs.resolve(config).read_text(encoding="utf-8"))["data"]["init_args"]
    data: Any = LanguageModelling(**settings, stride=stride)
    ready(data)
    training = batches(data.train_dataloader(), inputs, is_mixed=stride is not None)
    return training, batches(data.test_dataloader(), tests, labels=True)


def every_matching(setting: Setting, inputs: Sequence[Batch], args: argparse.Namespace) -> Iterator[Line]:
    """The end models, and the mean of twins by each kind of matching that was asked for."""
    trainer = {"precision": args.precision}
    learned = {
        "data": inputs, "steps": args.steps, "batch_size": args.batch_size, "concentration": args.concentration,
        "trainer": trainer,
    }  # fmt: skip
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "none": ("plain mean", {}),
        "paper": ("the paper's matching", {}),
        "git-rebasin": ("permutations (Git Re-Basin)", {}),
        "weights": ("weights", {}),
        "activations": ("activations", {"data": inputs[:8], "trainer": trainer}),
        "learned": (f"learned, {args.steps} steps", learned),
    }
    if WRITTEN in args.matchings:
        texts = Inputs.synthetic(
            setting.groups[0], sum(len(batch["input_ids"]) for batch in inputs), kind=GENERATED
        ).shared
        words = f"no real data: learned, {args.steps} steps"
        ways[WRITTEN] = (words, {**learned, "preset": "learned", "data": texts})
    yield setting.end_models()
    for preset in args.matchings:
        words, how = ways[preset]
        yield setting.matched(words, **{"preset": preset, **how})


def shakespeare(args: argparse.Namespace) -> Iterator[Line]:
    """Two GPT-2s on Tiny Shakespeare, byte by byte; embeddings tied as they were trained, and untied."""
    pair = [trained(args.gpt2, seed) for seed in args.seeds]
    inputs, test = text(args.gpt2, 4000 if args.stride is None else None, 400, args.stride)
    shape: Any = pair[0].config
    name = f"GPT-2 of {shape.n_layer} layers, {shape.n_embd} wide, Tiny Shakespeare"
    groups = {"tied": pair, "untied": [untie(model) for model in pair]}
    for embeddings in args.embeddings:
        setting = Setting(f"{name}, {embeddings}", [groups[embeddings]], test, "loss")
        yield from every_matching(setting, inputs, args)


def deberta(args: argparse.Namespace) -> Iterator[Line]:
    """Two small DeBERTas, whose norms come after the sums, on masked bytes of Tiny Shakespeare."""
    config = "deberta_shakespeare_small.yaml"
    pair = [trained(config, seed) for seed in args.seeds]
    inputs, test = text(config, 4000, 400)
    yield from every_matching(Setting("DeBERTa of 3 layers, 64 wide, masked bytes", [pair], test, "loss"), inputs, args)


def experts(args: argparse.Namespace) -> Iterator[Line]:
    """Two small mixtures of experts, of a type that nobody described, on bytes of Tiny Shakespeare."""
    config = "mixtral_shakespeare_small.yaml"
    pair = [trained(config, seed) for seed in args.seeds]
    inputs, test = text(config, 4000, 400)
    setting = Setting("Mixtral of 3 layers, 64 wide, 4 experts, Tiny Shakespeare", [pair], test, "loss")
    yield setting.matched("experts and units in them only", preset="weights", spaces=("experts", "ffn"))
    others = ("residual", "heads", "attention", "ffn")
    yield setting.matched("weights, experts by index", preset="weights", spaces=others)
    yield from every_matching(setting, inputs, args)


def cifar(args: argparse.Namespace) -> Iterator[Line]:
    """Two ViTs on CIFAR-10, as many training images as asked for; the first 1,000 test images."""
    models = [fusionlab.load(Path(folder)) for folder in args.vits]
    pixels: Any = Images(
        args.cifar, image_column="image", label_column="label", split_column="split", val_size=0,
        mean=CIFAR_MEAN, std=CIFAR_DEVIATION, augment=False, batch_size=128,
    )  # fmt: skip
    pixels.setup("fit")
    pixels.setup("test")
    train = batches(pixels.train_dataloader(), args.images)
    test = batches(pixels.test_dataloader(), 1_000, labels=True)
    pair = Setting("CIFAR-10, two ViTs", [models], test)
    yield from every_matching(pair, train, args)
    for variant, start in (("weights", "weights"), ("the plain mean", "none")):
        yield pair.polished(f"polished from {variant}, {args.steps} steps", train, start, args.steps)
    synthetic: Any = probes(models, args.images, mean=CIFAR_MEAN, std=CIFAR_DEVIATION)
    learned = f"no real data: learned, {args.steps} steps"
    yield pair.matched(learned, preset="learned", data=synthetic, steps=args.steps)
    polished = f"no real data: polished from weights, {args.steps} steps"
    yield pair.polished(polished, synthetic, "weights", args.steps)
