"""How fast weight matching is: against the published per-head loop, and against the bare matrix products it needs.

    python benchmarks/matching.py --models roberta-base vit deberta-large --pairs near independent --runs 3

For every model and pair, `ours`, `peer` and `bound` run in turn, `--runs` times, in this process; what is compared are
their medians. Peak memory is measured afterwards, each variant in a fresh process. The exit code is 1 if ours and the
peer do not reach the same distance to six digits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
# Threads that spin while they wait make the peer's many small products minutes long as soon as cores are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import published_loop
import torch
from memory import peak_above
from published_loop import TEXT, VISION, Names, State
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import RobertaConfig, RobertaForSequenceClassification, ViTConfig, ViTForImageClassification

from fusionlab.atomic import atomic_file
from fusionlab.matching import hidden_units, weights
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.groups import Orthogonal

# The published code for text models rescales nothing, so neither do we here.
OPTIONS = preset("paper", rescale="off")
NOISE = 0.1


def _text(layers: int, width: int, heads: int, hidden: int) -> RobertaForSequenceClassification:
    config = RobertaConfig(
        vocab_size=1000,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=hidden,
    )
    return RobertaForSequenceClassification(config)


def _vision() -> ViTForImageClassification:
    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=7,
        num_attention_heads=12,
        intermediate_size=1536,
        image_size=32,
        patch_size=4,
    )
    return ViTForImageClassification(config)


MODELS: dict[str, tuple[Callable[[], Any], Names]] = {
    "roberta-base": (lambda: _text(12, 768, 12, 3072), TEXT),
    "deberta-large": (lambda: _text(24, 1024, 16, 4096), TEXT),
    "vit": (_vision, VISION),
}
PAIRS = ("near", "independent")


@dataclass(frozen=True)
class Problem:
    """Two models to be matched."""

    source: State
    anchor: State
    description: Blueprint
    names: Names
    layers: int
    heads: int

    @property
    def matched(self) -> tuple[str, ...]:
        """The parameters that matching may change; distances are summed over them."""
        return tuple(self.description.touching(space.name for space in OPTIONS.select(self.description)))

    def distance(self, twin: Mapping[str, Tensor]) -> float:
        return squared_distance(twin, self.anchor, self.matched) ** 0.5


def problem(model: str, pair: str) -> Problem:
    """A pair of random models: ``near`` (hidden behind a random basis, with noise) or ``independent``."""
    build, names = MODELS[model]
    # Shapes are all that is needed of the model: its own initialisation would take longer than matching it.
    with torch.device("meta"):
        empty = build()
    description = blueprint(empty)
    anchor = _random_state(empty.state_dict(), seed=0)
    source = _random_state(empty.state_dict(), seed=1) if pair == "independent" else _near(anchor, description)
    return Problem(source, anchor, description, names, empty.config.num_hidden_layers, empty.config.num_attention_heads)


def _random_state(shapes: Mapping[str, Tensor], seed: int) -> State:
    """Weights as transformers draws them, biases N(0, 0.05) and gains 1 + N(0, 0.05)."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, like in shapes.items():
        drawn = torch.randn(like.shape, generator=generator)
        is_gain = drawn.ndim == 1 and name.endswith("weight")
        state[name] = 1 + 0.05 * drawn if is_gain else drawn * (0.05 if drawn.ndim == 1 else 0.02)
    return state


def _near(anchor: State, description: Blueprint) -> State:
    """The anchor in another basis, every tensor with Gaussian noise of a tenth of its norm."""
    generator = torch.Generator().manual_seed(2)
    elements = {}
    for space in OPTIONS.select(description):
        group = Orthogonal(space.group.size) if space.group.is_general_linear else space.group
        elements[space.name] = group.random(space.copies, generator)
    hidden = Alignment(description, elements).apply(anchor)
    return {
        name: tensor + NOISE * tensor.square().mean().sqrt() * torch.randn(tensor.shape, generator=generator)
        for name, tensor in hidden.items()
    }


# The three things that are timed


def ours(task: Problem) -> State:
    """What fusionlab does: find the alignment, apply it to the whole state."""
    return match_weights(task.source, task.anchor, task.description, OPTIONS).apply(task.source)


def peer(task: Problem) -> State:
    """The published algorithm."""
    return published_loop.match(task.source, task.anchor, task.names, task.layers, task.heads)


def bound(task: Problem) -> None:
    """The bare products that any exact method needs, in float32: correlations of hidden units and of heads."""
    for layer in range(task.layers):
        names = task.names.at(layer)
        up, down, out = f"{names.up}.weight", f"{names.down}.weight", f"{names.output}.weight"
        correlation = task.anchor[up] @ task.source[up].T
        correlation.addmm_(task.anchor[down].T, task.source[down])
        for name in (names.query, names.key, names.value):
            first, second = (s[f"{name}.weight"].unflatten(0, (task.heads, -1)) for s in (task.source, task.anchor))
            torch.bmm(second, first.mT)
        first, second = (s[out].T.unflatten(0, (task.heads, -1)) for s in (task.source, task.anchor))
        torch.bmm(second, first.mT)


# Measuring

PARTS = {
    "products": ("correlate_permutation", "correlate_inner"),
    "decompositions": ("solve",),
    "assignment": ("assignment", "certified_assignment"),
}


@contextmanager
def parts_of_ours(spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds spent in each part. Assignments run beside products, so that parts may exceed the total."""
    lock = threading.Lock()

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                with lock:
                    spent[part] += time.perf_counter() - start

        return call

    spent.update(dict.fromkeys((*PARTS, "apply"), 0.0))
    with ExitStack() as patches:
        for part, names in PARTS.items():
            for name, module in ((name, module) for name in names for module in (weights, hidden_units)):
                if hasattr(module, name):
                    patches.enter_context(mock.patch.object(module, name, timed(part, getattr(module, name))))
        patches.enter_context(mock.patch.object(Alignment, "apply", timed("apply", Alignment.apply)))
        yield


def seconds(function: Callable[[Problem], Any], task: Problem) -> float:
    start = time.perf_counter()
    function(task)
    return time.perf_counter() - start


@dataclass(frozen=True)
class Row:
    """What is measured for one model and pair: medians in seconds, distances, extra memory in MiB."""

    model: str
    pair: str
    runs: int
    threads: int
    ours: float
    peer: float
    bound: float
    parts: dict[str, float]
    distance_before: float
    distance_ours: float
    distance_peer: float
    memory_ours: float
    memory_peer: float

    @property
    def agrees(self) -> bool:
        return abs(self.distance_ours - self.distance_peer) <= 1e-6 * self.distance_peer


def measure(model: str, pair: str, runs: int) -> Row:
    """Time the three variants in turn, so that what else the machine does meets all of them alike."""
    task = problem(model, pair)
    before = task.distance(task.source)
    timings: dict[str, list[float]] = {"ours": [], "peer": [], "bound": []}
    parts: list[dict[str, float]] = []
    with torch.no_grad():
        bound(task)
        for _ in range(runs):
            spent: dict[str, float] = {}
            with parts_of_ours(spent):
                timings["ours"].append(seconds(ours, task))
            parts.append(spent)
            timings["peer"].append(seconds(peer, task))
            timings["bound"].append(seconds(bound, task))
        distances = {function.__name__: task.distance(function(task)) for function in (ours, peer)}
    return Row(
        model=model,
        pair=pair,
        runs=runs,
        threads=torch.get_num_threads(),
        **{name: statistics.median(times) for name, times in timings.items()},
        parts={part: statistics.median(spent[part] for spent in parts) for part in parts[0]},
        distance_before=before,
        distance_ours=distances["ours"],
        distance_peer=distances["peer"],
        memory_ours=memory("ours", model, pair),
        memory_peer=memory("peer", model, pair),
    )


def memory(variant: str, model: str, pair: str) -> float:
    """Peak memory beyond the two models, of one variant in a process of its own, in MiB."""
    command = [sys.executable, __file__, "--memory-of", variant, "--models", model, "--pairs", pair]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_memory(variant: str, model: str, pair: str) -> float:
    """The same, in this process: the high-water mark is reset once the models are there (Linux, glibc)."""
    function = {"ours": ours, "peer": peer}[variant]
    # What libraries allocate once, on first use, is not the variant's.
    function(problem("vit", pair))
    task = problem(model, pair)
    return peak_above(lambda: function(task))


def show(rows: list[Row]) -> None:
    """Print ratios first: they survive a change of machine, seconds do not."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    threads = rows[0].threads
    table = Table(title=f"Weight matching, {threads} threads, medians of {rows[0].runs} interleaved runs")
    columns = ("model", "pair", "peer / ours", "ours / bound", "ours s", "peer s", "bound s")
    for column in (*columns, "before", "distance ours", "distance peer", "MiB ours", "MiB peer"):
        table.add_column(column, justify="left" if column in ("model", "pair") else "right")
    for row in rows:
        table.add_row(
            row.model,
            row.pair,
            f"{row.peer / row.ours:.1f}",
            f"{row.ours / row.bound:.2f}",
            *(f"{value:.3f}" for value in (row.ours, row.peer, row.bound)),
            f"{row.distance_before:.3f}",
            f"{row.distance_ours:.5f}",
            f"{row.distance_peer:.5f}" if row.agrees else f"[red]{row.distance_peer:.5f}[/red]",
            f"{row.memory_ours:.0f}",
            f"{row.memory_peer:.0f}",
        )
    console.print(table)
    detail = Table(title="Where ours spends its time, seconds (assignments run beside products)")
    for column in ("model", "pair", *rows[0].parts):
        detail.add_column(column, justify="left" if column in ("model", "pair") else "right")
    for row in rows:
        detail.add_row(row.model, row.pair, *(f"{spent:.3f}" for spent in row.parts.values()))
    console.print(detail)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["roberta-base", "vit"])
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--runs", type=int, default=3, help="at least 1; medians are taken over them")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows here")
    parser.add_argument("--memory-of", choices=("ours", "peer"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.runs < 1:
        parser.error(f"--runs is {args.runs}; expected at least 1")
    if args.memory_of:
        with torch.no_grad():
            print(peak_memory(args.memory_of, args.models[0], args.pairs[0]))
        return 0
    rows = [measure(model, pair, args.runs) for model in args.models for pair in args.pairs]
    show(rows)
    if args.json:
        with atomic_file(args.json, overwrite=True) as path:
            path.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if all(row.agrees for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
