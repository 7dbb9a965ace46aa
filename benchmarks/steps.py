"""Prints what a step of learned matching takes beside one of distillation of the same batch, on one thread.

python benchmarks/steps.py --runs 3

Models are those of the pages on digits and on Shakespeare, with random weights and on synthetic inputs. Seconds are of
processor time; those of both are taken in turn, and medians are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from statistics import median
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from settings import quiet
from step_times import DISTILLATION, LEARNING, descents, seconds_a_step
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification

from fusionlab.inputs import Inputs
from fusionlab.models import untie


def vit(width: int) -> nn.Module:
    """The demo's vision transformer."""
    fields: dict[str, Any] = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    fields |= {"num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 2 * width}
    return ViTForImageClassification(ViTConfig(hidden_size=width, **fields))


def gpt2(layers: int, width: int, length: int, is_tied: bool) -> nn.Module:
    """A GPT-2 of bytes."""
    fields: dict[str, Any] = {"vocab_size": 259, "n_layer": layers, "n_head": 4, "bos_token_id": 257}
    model = GPT2LMHeadModel(GPT2Config(n_embd=width, n_positions=length, eos_token_id=257, **fields))
    return model if is_tied else untie(model)


# Name, models, size of a batch, and steps of a short and of a longer descent.
CASES: dict[str, tuple[Any, int, tuple[int, int]]] = {
    "ViT, digits, 4 layers, 64 wide": (lambda: vit(64), 128, (10, 60)),
    "ViT, digits, 4 layers, 128 wide": (lambda: vit(128), 128, (10, 40)),
    "GPT-2, 3 layers, 64 wide, tied": (lambda: gpt2(3, 64, 128, True), 16, (10, 60)),
    "GPT-2, 3 layers, 64 wide, untied": (lambda: gpt2(3, 64, 128, False), 16, (10, 60)),
    "GPT-2, 6 layers, 256 wide, tied": (lambda: gpt2(6, 256, 256, True), 16, (2, 8)),
    "GPT-2, 6 layers, 256 wide, untied": (lambda: gpt2(6, 256, 256, False), 16, (2, 8)),
    # Large enough to be made anew in the backward pass.
    "GPT-2, 8 layers, 512 wide, untied": (lambda: gpt2(8, 512, 256, False), 16, (1, 3)),
}


def measure(case: str, runs: int) -> dict[str, float]:
    """Medians of the seconds of a step of each kind.

    Args:
        case: one of `CASES`.
        runs: of each kind, in turn.
    """
    make, size, (less, more) = CASES[case]
    torch.manual_seed(0)
    models = [make().eval(), make().eval()]
    inputs = [dict(batch) for batch in Inputs.synthetic(models, 4 * size).shared]
    kinds = descents(models, inputs, size, {"accelerator": "cpu", "devices": 1})
    for descend in kinds.values():
        descend(less)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(runs):
        for name, descend in kinds.items():
            times[name].append(seconds_a_step(descend, less, more, time.process_time))
    return {name: median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    args = parser.parse_args()
    quiet(1)
    print("| models | batch | learning s | distillation s | learning / distillation |\n|---|---:|---:|---:|---:|")
    for case in args.cases:
        found = measure(case, args.runs)
        ratio = found[LEARNING] / found[DISTILLATION]
        print(
            f"| {case} | {CASES[case][1]} | {found[LEARNING]:.4f} | {found[DISTILLATION]:.4f} | {ratio:.2f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
