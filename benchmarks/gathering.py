"""How long gathering takes and how much memory it holds, against a plain forward and a forward and backward.

    python benchmarks/gathering.py --batches 4 --runs 3

A model of RoBERTa-base's size with random weights, batches of 8 x 128 tokens. All variants run in turn, `--runs` times,
in this process, over the same batches; what is compared are their medians. Peak memory is measured afterwards, each
variant in a fresh process. The exit code is 1 if ours and the naive way do not find the same statistics.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from memory import peak_above
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForSequenceClassification

from fusionlab.atomic import atomic_file
from fusionlab.statistics import Fisher, Grams, Statistics
from fusionlab.statistics.gather import gather
from fusionlab.trainers import quiet_trainer

Batch = dict[str, Tensor]

EXAMPLES, TOKENS, CLASSES, VOCABULARY = 8, 128, 3, 50265
# Rounding of sums of float32 in another order.
AGREEMENT = 1e-3


@dataclass(frozen=True)
class Task:
    """A model, and batches of it."""

    model: nn.Module
    batches: list[Batch]


def task(is_small: bool, batches: int, device: str) -> Task:
    """Random weights and random tokens: what they are does not matter for how long anything takes."""
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": 514, "num_labels": CLASSES}
    if is_small:
        sizes |= {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
        sizes["vocab_size"] = 1000
    torch.manual_seed(0)
    model: nn.Module = RobertaForSequenceClassification(RobertaConfig(**sizes))
    model.to(device).eval()
    made = []
    for _ in range(batches):
        ids = torch.randint(3, sizes["vocab_size"], (EXAMPLES, TOKENS))
        labels = torch.randint(CLASSES, (EXAMPLES,))
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
        made.append({name: tensor.to(device) for name, tensor in batch.items()})
    return Task(model, made)


# What is timed


@torch.no_grad()
def forward(given: Task) -> None:
    for batch in given.batches:
        given.model(**batch)


def forward_backward(given: Task) -> None:
    for batch in given.batches:
        given.model(**batch).loss.backward()
        given.model.zero_grad()


def gathered(given: Task, kind: str, **settings: Any) -> Statistics:
    """The whole call, with what it takes to set the Trainer up and to look at the model first."""
    return gather(given.model, given.batches, [kind], trainer=lambda: quiet_trainer(devices=1), **settings)[kind]


def gram(given: Task) -> Statistics:
    return gathered(given, "gram")


def fisher_model(given: Task) -> Statistics:
    return gathered(given, "fisher", labels="model")


def fisher_expected(given: Task) -> Statistics:
    return gathered(given, "fisher", labels="expected")


def fisher_empirical(given: Task) -> Statistics:
    return gathered(given, "fisher", labels="empirical")


def naive_gram(given: Task) -> dict[str, Tensor]:
    """As published: a Gram matrix for every linear layer, also where three layers read one input; gradients on."""
    grams: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            x = args[0].detach().flatten(0, -2)
            grams[name] = grams[name] + x.T @ x if name in grams else x.T @ x

        return hook

    layers = {name: layer for name, layer in given.model.named_modules() if isinstance(layer, nn.Linear)}
    handles = [layer.register_forward_hook(watch(f"{name}.weight")) for name, layer in layers.items()]
    for batch in given.batches:
        given.model(**batch)
    for handle in handles:
        handle.remove()
    return grams


def naive_fisher(given: Task) -> dict[str, Tensor]:
    """One example at a time, with its true label: exact, and what published code for images does."""
    sums: dict[str, Tensor] = {}
    for batch in given.batches:
        for index in range(EXAMPLES):
            given.model(**{name: tensor[index : index + 1] for name, tensor in batch.items()}).loss.backward()
            for name, parameter in given.model.named_parameters():
                if parameter.grad is not None:
                    square = parameter.grad.square()
                    sums[name] = sums[name] + square if name in sums else square
            given.model.zero_grad()
    return {name: tensor / (EXAMPLES * len(given.batches)) for name, tensor in sums.items()}


@dataclass(frozen=True)
class Variant:
    """One thing that is timed.

    Attributes:
        run: what is timed.
        aim: in words, of the time.
        limit: of the time, and by which variant's time it is counted.
    """

    run: Callable[[Task], Any]
    aim: str = ""
    limit: tuple[float, str] | None = None


VARIANTS = {
    "forward": Variant(forward),
    "forward and backward": Variant(forward_backward),
    "gram": Variant(gram, "3 forwards", (3.0, "forward")),
    "gram, naive": Variant(naive_gram),
    "fisher, labels of the model": Variant(fisher_model, "2 forwards and backwards", (2.0, "forward and backward")),
    "fisher, true labels": Variant(fisher_empirical, "2 forwards and backwards", (2.0, "forward and backward")),
    f"fisher, all {CLASSES} classes": Variant(fisher_expected),
    "fisher, naive": Variant(naive_fisher),
}


# Measuring


@dataclass(frozen=True)
class Row:
    """What is measured of one variant: the median in seconds, and its ratios; the peak above the model in MiB."""

    variant: str
    seconds: float
    forwards: float
    forwards_and_backwards: float
    memory: float
    aim: str
    is_reached: bool | None


def seconds(run: Callable[[Task], Any], given: Task, device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    run(given)
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Time all variants in turn, so that what else the machine does meets all of them alike."""
    # What libraries do once, on first use, is no variant's.
    small = task(True, 1, arguments.device)
    for variant in VARIANTS.values():
        variant.run(small)
    given = task(arguments.small, arguments.batches, arguments.device)
    timings: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(arguments.runs):
        for name, variant in VARIANTS.items():
            timings[name].append(seconds(variant.run, given, arguments.device))
    medians = {name: statistics.median(times) for name, times in timings.items()}
    return [
        Row(
            variant=name,
            seconds=medians[name],
            forwards=medians[name] / medians["forward"],
            forwards_and_backwards=medians[name] / medians["forward and backward"],
            memory=memory(name, arguments),
            aim=variant.aim,
            is_reached=None if variant.limit is None else medians[name] <= variant.limit[0] * medians[variant.limit[1]],
        )
        for name, variant in VARIANTS.items()
    ]


def memory(variant: str, arguments: argparse.Namespace) -> float:
    """Peak memory above the model, of one variant in a process of its own, in MiB."""
    command = [sys.executable, __file__, "--memory-of", variant, "--batches", str(arguments.batches)]
    command += ["--device", arguments.device, *(["--small"] if arguments.small else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def peak_memory(variant: str, arguments: argparse.Namespace) -> float:
    """The same, in this process; on the CPU the high-water mark is reset once the model is there (Linux, glibc)."""
    run = VARIANTS[variant].run
    run(task(True, 1, arguments.device))
    given = task(arguments.small, arguments.batches, arguments.device)
    gc.collect()
    if arguments.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        run(given)
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    return peak_above(lambda: run(given))


def disagreement(device: str) -> float:
    """The largest relative difference between ours and the naive way, over all parameters, on the small model."""
    given = task(True, 2, device)
    grams, fisher = gram(given), fisher_empirical(given)
    assert isinstance(grams, Grams)
    assert isinstance(fisher, Fisher)
    pairs = [(grams.matrices[grams.maps[name].inputs][:-1, :-1], found) for name, found in naive_gram(given).items()]
    found = naive_fisher(given)
    # Without a gradient but rounding (key biases) there is nothing to compare.
    largest = max(float(tensor.norm()) for tensor in found.values())
    pairs += [(fisher.diagonal[name], tensor) for name, tensor in found.items() if tensor.norm() > 1e-6 * largest]
    return max(float((ours - naive.cpu()).norm() / naive.norm()) for ours, naive in pairs)


def show(rows: list[Row], arguments: argparse.Namespace) -> None:
    """Print ratios first: they survive a change of machine, seconds do not."""
    size = "a small model" if arguments.small else "RoBERTa-base size"
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(
        title=f"Gathering, {size}, {arguments.batches} batches of {EXAMPLES} x {TOKENS} tokens, "
        f"{arguments.device}, {torch.get_num_threads()} threads, medians of {arguments.runs} interleaved runs"
    )
    columns = ("variant", "forwards", "forwards and backwards", "seconds", "MiB above the model", "aim: within")
    for column in columns:
        table.add_column(column, justify="left" if column in ("variant", "aim: within") else "right")
    for row in rows:
        verdict = {None: "", True: ", [green]reached[/green]", False: ", [red]missed[/red]"}[row.is_reached]
        ratios = (f"{row.forwards:.2f}", f"{row.forwards_and_backwards:.2f}")
        table.add_row(row.variant, *ratios, f"{row.seconds:.2f}", f"{row.memory:.0f}", row.aim + verdict)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=4, help="at least 1")
    parser.add_argument("--runs", type=int, default=3, help="at least 1; medians are taken over them")
    parser.add_argument("--small", action="store_true", help="a model of 4 layers, 256 wide: to see that all works")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows here")
    parser.add_argument("--memory-of", choices=VARIANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if min(arguments.runs, arguments.batches) < 1:
        parser.error("--runs and --batches must be at least 1")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    if arguments.memory_of:
        print(peak_memory(arguments.memory_of, arguments))
        return 0
    rows = measure(arguments)
    show(rows, arguments)
    found = disagreement(arguments.device)
    print(f"Largest relative difference to the naive statistics: {found:.1e}")
    if arguments.json:
        with atomic_file(arguments.json, overwrite=True) as path:
            path.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if found <= AGREEMENT else 1


if __name__ == "__main__":
    sys.exit(main())
