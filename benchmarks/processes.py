"""Prints the memory of each process of a Trainer that passes over data, of a ViT of 72 MiB on the processor.

python benchmarks/processes.py --work gathering
torchrun --nproc_per_node 2 benchmarks/processes.py --work gathering

`gathering` is of Gram matrices and Fisher information of one model, `learning` a learned matching of two, `polish` a
distillation of two into their mean.
"""

import argparse
import os
import resource
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Trainer
from transformers import ViTConfig, ViTForImageClassification

import fusionlab
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import align_models, recipe
from fusionlab.polish import PolishOptions, polish
from fusionlab.stages import TrainerFactory, run
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import blueprint
from fusionlab.trainers import quiet_trainer

Batch = dict[str, torch.Tensor]
# Of AdamW; the peak is that of the second.
STEPS = 3


def peak() -> float:
    """The largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def gathering(models: list[ViTForImageClassification], batches: list[Batch], trainer: TrainerFactory) -> None:
    gather(models[0], batches, ("gram", "fisher"), trainer=trainer)


def learning(models: list[ViTForImageClassification], batches: list[Batch], trainer: TrainerFactory) -> None:
    # The start is not what is measured.
    chosen = recipe("learned", steps=STEPS, batch_size=64, temperatures=1, sweeps=1, every=0)
    run(align_models(models, blueprint(models[0]), chosen, 0, Inputs.from_batches(batches, 2)), trainer)


def polishing(models: list[ViTForImageClassification], batches: list[Batch], trainer: TrainerFactory) -> None:
    polish(fusionlab.merge(models), models, batches, PolishOptions(steps=STEPS, batch_size=64), trainer)


WORK: dict[str, Callable[[list[ViTForImageClassification], list[Batch], TrainerFactory], None]] = {
    "gathering": gathering,
    "learning": learning,
    "polish": polishing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=WORK, default="gathering")
    args = parser.parse_args()
    count, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    fields: dict[str, Any] = {
        "image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10,
        "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
    }  # fmt: skip
    torch.manual_seed(0)
    models = [
        ViTForImageClassification(ViTConfig(**fields)).eval() for _ in range(1 if args.work == "gathering" else 2)
    ]
    size = sum(parameter.numel() * parameter.element_size() for parameter in models[0].parameters()) / 2**20
    generator = torch.Generator().manual_seed(0)
    batches = [
        {"pixel_values": torch.randn(16, 1, 8, 8, generator=generator), "labels": torch.zeros(16, dtype=torch.long)}
        for _ in range(4)
    ]

    def trainer() -> Trainer:
        return quiet_trainer(accelerator="cpu", devices=count, strategy="ddp" if count > 1 else "auto")

    before = peak()
    WORK[args.work](models, batches, trainer)
    print(
        f"{args.work}, process {rank} of {count}: {len(models)} of {size:.0f} MiB, {before:.0f} MiB before, "
        f"{peak():.0f} MiB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
