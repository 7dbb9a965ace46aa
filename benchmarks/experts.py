"""How long experts take to be matched together with their units: against experts by index, and against every pair.

    python benchmarks/experts.py --experts 8 --units 1024 --width 512 --runs 3

The first layer of a Mixtral with random weights. Everything runs in turn, `--runs` times, in one process, and medians
are compared: what is timed is `match_weights`. The exit code is 1 if experts that correspond to each other are not
found, or a distance is not as it has to be: experts by index no closer than ours, ours no closer than every pair.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM

from fusionlab.matching import nested
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.roles import Role

State = dict[str, Tensor]
NOISE = 0.3
JOINT = MatchOptions(spaces=("experts", "ffn"), layers="0", rescale="off")
# How experts are matched, and whether the gains of all pairs of units are held whatever memory that takes.
VARIANTS = {
    "by index": (MatchOptions(spaces=("ffn",), layers="0", rescale="off"), False),
    "ours": (JOINT, False),
    "every pair": (JOINT, True),
}


def pair(kind: str, args: argparse.Namespace) -> tuple[State, State, Blueprint]:
    """Two models: one near the other in another order of experts and units, or independent of it."""
    config = MixtralConfig(
        vocab_size=64, hidden_size=args.width, intermediate_size=args.units, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=args.experts, num_experts_per_tok=2,
    )  # fmt: skip
    torch.manual_seed(0)
    models = [MixtralForCausalLM(config) for _ in range(2)]
    description, (anchor, other) = blueprint(models[0]), (model.state_dict() for model in models)
    if kind == "independent":
        return other, anchor, description
    draw = torch.Generator().manual_seed(1)
    roles = (Role.EXPERTS, Role.UNITS)
    spaces = [s for s in description.spaces.values() if s.role in roles and isinstance(s.group, Permutation)]
    planted = Alignment(description, {s.name: s.group.random(s.copies, draw) for s in spaces})
    moved = planted.apply(anchor)
    return (
        {n: x + NOISE * x.std() * torch.randn(x.shape, generator=draw) for n, x in moved.items()},
        anchor,
        description,
    )


def measure(kind: str, args: argparse.Namespace) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds and the distance that is left, by variant."""
    source, anchor, description = pair(kind, args)
    timings: dict[str, list[float]] = {name: [] for name in VARIANTS}
    left = {}
    for _ in range(args.runs):
        for name, (options, everything) in VARIANTS.items():
            entries = 2**62 if everything else nested.HELD_ENTRIES
            with mock.patch.object(nested, "HELD_ENTRIES", entries):
                start = time.perf_counter()
                found = match_weights(source, anchor, description, options)
                timings[name].append(time.perf_counter() - start)
            left[name] = squared_distance(found.apply(source), anchor) ** 0.5
    return {name: statistics.median(seconds) for name, seconds in timings.items()}, left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--units", type=int, default=1024, help="of each expert")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3, help="at least 1; medians are taken over them")
    args = parser.parse_args()
    table = Table(title=f"{args.experts} experts of {args.units} units, {torch.get_num_threads()} threads")
    columns = ("pair", "ours / by index", "every pair / ours", *(f"{name} s" for name in VARIANTS))
    for column in (*columns, *(f"distance {name}" for name in VARIANTS)):
        table.add_column(column, justify="left" if column == "pair" else "right")
    right = True
    for kind in ("near", "independent"):
        seconds, left = measure(kind, args)
        index, ours, every = (seconds[name] for name in VARIANTS)
        times = [f"{ours / index:.1f}", f"{every / ours:.1f}", *(f"{x:.2f}" for x in seconds.values())]
        table.add_row(kind, *times, *(f"{x:.4f}" for x in left.values()))
        right &= left["every pair"] * (1 - 1e-6) <= left["ours"] <= left["by index"] * (1 + 1e-6)
        right &= kind != "near" or left["ours"] < 0.9 * left["by index"]
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
