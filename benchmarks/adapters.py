"""Time and memory of a merge of two LoRA adapters of rank 16, whole and as an adapter.

``python benchmarks/adapters.py --size 200m`` makes a Llama of random bfloat16 weights and two adapters of its queries,
values and feed-forward outputs in a temporary folder, and merges them in child processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from streaming import SIZES, child, make

RANK = 16
MERGE = "import sys\nfrom fusionlab.cli import main\nsys.exit(main(sys.argv[1:]))"


def make_adapter(folder: Path, base: Path, size: str, seed: int) -> None:
    """Write a random adapter."""
    layers, width, hidden, heads, kv_heads, _ = SIZES[size]
    kv = width // heads * kv_heads
    shapes = {"self_attn.q_proj": (width, width), "self_attn.v_proj": (kv, width), "mlp.down_proj": (width, hidden)}
    draw = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(layers):
        for name, (out, into) in shapes.items():
            key = f"base_model.model.model.layers.{layer}.{name}.lora_"
            tensors[f"{key}A.weight"] = torch.randn(RANK, into, generator=draw) / 100
            tensors[f"{key}B.weight"] = torch.randn(out, RANK, generator=draw) / 100
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK}
    config["base_model_name_or_path"] = str(base)
    (folder / "adapter_config.json").write_text(json.dumps(config))


def main() -> None:
    """Make a base model and adapters, merge them, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--folder", type=Path, help="Where models are made, for the time of the run.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        base, adapters = Path(place) / "base", [Path(place) / str(seed) for seed in range(2)]
        make(base, SIZES[arguments.size], 0)
        for seed, adapter in enumerate(adapters):
            make_adapter(adapter, base, arguments.size, seed)
        print("| | seconds of a processor | anonymous memory, MiB | resident, MiB | load |\n|---|---:|---:|---:|---:|")
        for name, options in (("a model", []), ("an adapter", ["--as", "lora", "--rank", str(RANK)])):
            load, out = os.getloadavg()[0], Path(place) / "out"
            run = child([sys.executable, "-c", MERGE, "merge", *map(str, adapters), *options, "--output", str(out)])
            shutil.rmtree(out)
            print(
                f"| {name} | {run.processor:.1f} | {run.anonymous:,.0f} | {run.resident:,.0f} | {load:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
