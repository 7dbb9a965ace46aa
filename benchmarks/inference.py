"""How long the symmetry of large models takes to infer, against making the same models without memory.

    python benchmarks/inference.py

Every model is made on the meta device from its config alone; no weights are read. Peak memory is what inference adds.
"Again" is what a later process takes, which finds the blueprint on the disk, in a cache of the benchmark's own.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn

from fusionlab.symmetry.infer import models
from fusionlab.symmetry.infer.kept import FOLDER
from fusionlab.symmetry.infer.models import inferred

SEVEN_BILLION: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
MODELS: dict[str, Callable[[], Any]] = {
    "Llama, 7B": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SEVEN_BILLION)),
    "Mixtral 8x7B": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig()),
    "gpt-oss": lambda: transformers.GptOssForCausalLM(transformers.GptOssConfig()),
    "DeepSeek-V3": lambda: transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config()),
}


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a function, and its seconds of the processor."""
    start = time.process_time()
    return function(), time.process_time() - start


def main() -> None:
    """Print one line for each model."""
    torch.set_num_threads(1)
    with torch.device("meta"):
        MODELS["Llama, 7B"]()  # imports what all of them need
    headings = ("model", "parameters", "making it (s)", "inference (s)", "ratio", "again (s)", "peak (MiB)")
    print(f"| {' | '.join(headings)} | continuous dimensions |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, make in MODELS.items():
        with torch.device("meta"):
            model, making = timed(make)
        assert isinstance(model, nn.Module)
        before = peak()
        found, seconds = timed(partial(inferred, model))
        added = peak() - before
        models.KNOWN.clear()
        _, again = timed(partial(inferred, model))
        count = sum(p.numel() for p in model.parameters())
        freest = found.after_folding or found
        told = (f"{making:.2f}", f"{seconds:.1f}", f"{seconds / making:.0f}", f"{again:.2f}", f"{added:.0f}")
        print(f"| {name} | {count:,} | {' | '.join(told)} | {freest.dimension:,} |")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ[FOLDER] = cache
        main()
