"""Prints the memory of each process of a Trainer while Gram matrices and Fisher information of a ViT are gathered.

python benchmarks/processes.py
torchrun --nproc_per_node 2 benchmarks/processes.py
"""

import os
import resource
from typing import Any

import torch
from lightning.pytorch import Trainer
from transformers import ViTConfig, ViTForImageClassification

from fusionlab.statistics.gather import gather
from fusionlab.trainers import quiet_trainer


def peak() -> float:
    """The largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    count, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    fields: dict[str, Any] = {
        "image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10,
        "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
    }  # fmt: skip
    model = ViTForImageClassification(ViTConfig(**fields)).eval()
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()) / 2**20
    generator = torch.Generator().manual_seed(0)
    batches = [
        {"pixel_values": torch.randn(16, 1, 8, 8, generator=generator), "labels": torch.zeros(16, dtype=torch.long)}
        for _ in range(4)
    ]

    def trainer() -> Trainer:
        return quiet_trainer(accelerator="cpu", devices=count, strategy="ddp" if count > 1 else "auto")

    before = peak()
    gather(model, batches, ("gram", "fisher"), trainer=trainer)
    print(
        f"process {rank} of {count}: model {size:.0f} MiB, {before:.0f} MiB before, {peak():.0f} MiB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
