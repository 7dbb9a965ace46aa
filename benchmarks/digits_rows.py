"""Rows on scikit-learn's digits: every end model is trained here, on 1,300 images; 1,400 are there to match with."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

from digits_models import digits, digits_model
from settings import Batch, Line, Setting, batches

import fusionlab
from fusionlab.data import Digits
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from fusionlab.probes import probes
from fusionlab.stages import run


def demo_pair(name: str, test: list[Batch]) -> Setting:
    """The demo's two end models."""
    return Setting(name, [[digits_model(1), digits_model(2)]], test)


def demo(args: argparse.Namespace) -> Iterator[Line]:
    """The demo's pair, no data used for matching."""
    _, test = digits()
    pair = demo_pair("digits, the demo's pair, no data", test)
    yield pair.end_models()
    yield pair.matched("plain mean", preset="none")
    yield pair.matched("the paper's matching", preset="paper")
    yield pair.matched("permutations (Git Re-Basin)", preset="git-rebasin")
    yield pair.matched("optimal transport (OT-WTS)", preset="none", method="ot")
    yield pair.matched("weights", preset="weights")


def data(args: argparse.Namespace) -> Iterator[Line]:
    """The demo's pair with training images."""
    train, test = digits()
    pair = demo_pair("digits, the demo's pair, 1,400 images", test)
    images, labelled = batches(train), batches(train, labels=True)
    yield pair.matched("optimal transport (OT-ACTS)", preset="none", method="ot", merge_data=images)
    yield pair.matched("activations", preset="activations", data=images)
    yield pair.matched("weights, RegMean", preset="weights", method="regmean", merge_data=images)
    yield pair.matched("learned", preset="learned", data=images)
    yield pair.matched("learned, with labels", preset="learned", data=labelled, target="labels")
    yield pair.polished("polished from the plain mean", images, "none")
    yield pair.polished("polished from weights", images, "weights")


def at_once(count: int, steps: int, optimizer: str) -> Iterator[Line]:
    """Several models matched together, and every pair among their twins."""
    train, test = digits()
    models = [digits_model(seed) for seed in range(1, count + 1)]
    together = Setting(f"digits, {count} models at once", [models], test)
    yield together.end_models()
    yield together.matched("plain mean", preset="none")
    yield together.matched("weights", preset="weights")
    start = time.perf_counter()
    twins = fusionlab.align(models, preset="learned", data=batches(train), steps=steps, optimizer=optimizer)
    seconds = time.perf_counter() - start
    yield together.line("learned together", [together.measure(fusionlab.merge(twins))], seconds=seconds)
    pairs = list(itertools.combinations(twins, 2))
    merges = [together.measure(fusionlab.merge(pair)) for pair in pairs]
    yield together.line("learned together, every pair", merges, [together.barrier(pair) for pair in pairs])


def four(args: argparse.Namespace) -> Iterator[Line]:
    """Four models at once, 2,000 steps."""
    return at_once(4, 2000, args.optimizer)


def eight(args: argparse.Namespace) -> Iterator[Line]:
    """Eight models at once, 4,800 steps."""
    return at_once(8, 4800, args.optimizer)


def none(args: argparse.Namespace) -> Iterator[Line]:
    """No real data at all: synthetic inputs."""
    _, test = digits()
    pair = demo_pair("digits, synthetic inputs only", test)
    inputs = probes(pair.groups[0], 4000)
    yield pair.matched("activations", preset="activations", data=inputs)
    yield pair.matched("learned", preset="learned", data=inputs)
    yield pair.matched("learned, 900 steps", preset="learned", data=inputs, steps=900)
    yield pair.polished("polished from the plain mean", inputs, "none")
    yield pair.polished("polished from weights", inputs, "weights")
    yield pair.polished("polished from learned", inputs, "learned")


def tasks(args: argparse.Namespace) -> Iterator[Line]:
    """Digits 0 to 4 and 5 to 9 from two seeds, merged into one that knows ten; no labels."""
    _, test = digits()
    low, high = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
    models = {"low": digits_model(1, classes=low), "high": digits_model(2, classes=high)}
    own = [Digits(val_size=0, classes=list(half)).train_dataloader() for half in (low, high)]
    inputs = Inputs.from_batches([batches(part) for part in own], 2)
    pair = Setting("digits 0-4 and 5-9, ten-way, no labels", [list(models.values())], test)
    yield pair.line("end models", [pair.measure(model) for model in models.values()])
    for variant, chosen in (("plain mean", None), ("weights", recipe("weights")), ("learned", recipe("learned"))):
        for options in (None, PolishOptions(steps=300)):
            matchings: dict[str, Any] = {} if chosen is None else {variant: chosen}
            start = time.perf_counter()
            plan = FusionPlan(matchings, anchor=1, polish=options, heads="union")
            kept = run(Fuser(models, plan, inputs).fuse()).kept
            assert kept is not None
            label = variant if options is None else f"{variant}, polished"
            yield pair.line(label, [pair.measure(kept.model)], seconds=time.perf_counter() - start)


def widths(args: argparse.Namespace) -> Iterator[Line]:
    """Ten pairs of five seeds at three widths: every one, not the best."""
    train, test = digits()
    images = batches(train)
    for width in args.widths:
        models = [digits_model(seed, width) for seed in range(1, 6)]
        pairs = Setting(f"digits, ten pairs, {width} wide", list(itertools.combinations(models, 2)), test)
        yield pairs.end_models()
        yield pairs.matched("plain mean", preset="none")
        yield pairs.matched("the paper's matching", preset="paper")
        yield pairs.matched("permutations (Git Re-Basin)", preset="git-rebasin")
        yield pairs.matched("weights", preset="weights")
        yield pairs.matched("learned", preset="learned", data=images)
