"""Prints the memory of each process of a Trainer that passes over data, of a ViT on the processor.

python benchmarks/processes.py --work gathering
torchrun --nproc_per_node 2 benchmarks/processes.py --work gathering --strategy fsdp

`gathering` is of Gram matrices, `fisher` of Fisher information of one model, `learning` a learned matching of two,
`polish` a distillation of two into the first. Models are read from files first, as a fusion reads them. Anonymous
memory is what the system cannot drop, as it can pages of files; its peak is looked for a few hundred times a second.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

import fusionlab
from fusionlab.inputs import Inputs
from fusionlab.matching.learned import refined
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.polish import PolishOptions, polish
from fusionlab.stages import TrainerFactory, run
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.trainers import quiet_trainer

Batch = dict[str, torch.Tensor]
Work = Callable[[list[nn.Module], list[Batch], TrainerFactory, int], None]
# Of AdamW; the peak is that of the second.
STEPS = 3


def anonymous() -> float:
    """Anonymous memory of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no RssAnon; expected Linux")


class Peak:
    """The largest anonymous memory of this process while the block runs, in MiB."""

    def __enter__(self) -> "Peak":
        self.most, self._is_over = anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._is_over.is_set():
            self.most = max(self.most, anonymous())
            time.sleep(0.003)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def gathering(models: list[nn.Module], batches: list[Batch], trainer: TrainerFactory, _: int) -> None:
    gather(models[0], batches, ("gram",), trainer=trainer)


def fisher(models: list[nn.Module], batches: list[Batch], trainer: TrainerFactory, _: int) -> None:
    gather(models[0], batches, ("fisher",), trainer=trainer)


def learning(models: list[nn.Module], batches: list[Batch], trainer: TrainerFactory, at_once: int) -> None:
    # The start is not what is measured.
    described = blueprint(models[0])
    options = RefineOptions(steps=STEPS, batch_size=at_once, every=0)
    start = [Alignment.identity(described)] * 2
    run(refined(models, described, start, Inputs.from_batches(batches, 2).shared, options), trainer)


def polishing(models: list[nn.Module], batches: list[Batch], trainer: TrainerFactory, at_once: int) -> None:
    polish(models[0], models, batches, PolishOptions(steps=STEPS, batch_size=at_once), trainer)


WORK: dict[str, Work] = {
    "gathering": gathering,
    "fisher": fisher,
    "learning": learning,
    "polish": polishing,
}


def read(sizes: dict[str, Any], count: int) -> list[nn.Module]:
    """Models of random numbers, from files that are gone again."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            torch.manual_seed(number)
            ViTForImageClassification(ViTConfig(**sizes)).save_pretrained(f"{folder}/{number}")
        return [fusionlab.load(f"{folder}/{number}") for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=WORK, default="gathering")
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64, help="images in a step of learning or polish")
    args = parser.parse_args()
    count, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    sizes = {
        "image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10, "hidden_size": args.width,
        "num_hidden_layers": args.layers, "num_attention_heads": args.width // 64, "intermediate_size": 4 * args.width,
    }  # fmt: skip
    models = read(sizes, 1 if args.work in ("gathering", "fisher") else 2)
    size = sum(parameter.numel() * parameter.element_size() for parameter in models[0].parameters()) / 2**20
    generator = torch.Generator().manual_seed(0)
    batches = [
        {"pixel_values": torch.randn(16, 1, 8, 8, generator=generator), "labels": torch.zeros(16, dtype=torch.long)}
        for _ in range(4)
    ]

    def trainer() -> Trainer:
        return quiet_trainer(accelerator="cpu", devices=count, strategy=args.strategy if count > 1 else "auto")

    before = anonymous()
    with Peak() as peak:
        WORK[args.work](models, batches, trainer, args.batch)
    print(
        f"{args.work}, process {rank} of {count}{f' ({args.strategy})' if count > 1 else ''}: {len(models)} of "
        f"{size:.0f} MiB, anonymous {before:.0f} MiB before, {peak.most - before:.0f} MiB more at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
