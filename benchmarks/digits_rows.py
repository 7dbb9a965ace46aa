"""Rows on digits beyond two models of all digits: several at once, and halves; end models are trained here."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

from digits_models import digits, digits_model
from settings import Line, Setting, batches

import fusionlab
from fusionlab.data import Digits
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from fusionlab.stages import run


def at_once(count: int, steps: int) -> Iterator[Line]:
    """Several models matched together, and every pair among their twins."""
    train, test = digits()
    models = [digits_model(seed) for seed in range(1, count + 1)]
    together = Setting(f"digits, {count} models at once", [models], test)
    yield together.end_models()
    yield together.matched("plain mean", preset="none")
    yield together.matched("weights", preset="weights")
    start = time.perf_counter()
    twins = fusionlab.align(models, preset="learned", data=batches(train), steps=steps)
    seconds = time.perf_counter() - start
    yield together.line("learned together", [together.measure(fusionlab.merge(twins))], seconds=seconds)
    pairs = list(itertools.combinations(twins, 2))
    merges = [together.measure(fusionlab.merge(pair)) for pair in pairs]
    yield together.line("learned together, every pair", merges, [together.barrier(pair) for pair in pairs])


def four(args: argparse.Namespace) -> Iterator[Line]:
    """Four models at once, 2,000 steps."""
    return at_once(4, 2000)


def eight(args: argparse.Namespace) -> Iterator[Line]:
    """Eight models at once, 4,800 steps."""
    return at_once(8, 4800)


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
        for options in (None, PolishOptions()):
            matchings: dict[str, Any] = {} if chosen is None else {variant: chosen}
            start = time.perf_counter()
            plan = FusionPlan(matchings, anchor=1, polish=options, heads="union")
            kept = run(Fuser(models, plan, inputs).fuse()).kept
            assert kept is not None
            label = variant if options is None else f"{variant}, polished"
            yield pair.line(label, [pair.measure(kept.model)], seconds=time.perf_counter() - start)
