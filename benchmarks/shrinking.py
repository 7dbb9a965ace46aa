"""Time and memory of `fusionlab shrink` of a Llama of 254 million numbers, a part at a time and in memory.

``python benchmarks/shrinking.py`` makes the model with random bfloat16 weights in a temporary folder, shrinks it in two
child processes of one thread, and prints what they took and how many numbers of their results differ.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

LARGE: dict[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 8, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
SMALL = LARGE | {
    "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 6,
}  # fmt: skip
# Tells on standard error what the command took.
SHRINK = """
import resource, sys, time
import torch
from fusionlab.commands import shrink, shrink_stream
large, small, output, least = sys.argv[1:]
shrink_stream.IN_MEMORY = int(least)
torch.set_num_threads(1)
start = time.time()
shrink.run([large, "--like", f"{small}/config.json", "--output", output])
seconds, used = time.time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_utime
# Not ru_maxrss, which begins with what the parent process held.
largest = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 2**10
print(f"{seconds:.0f} s, {used:.0f} of a processor, {largest:,.0f} MiB at most", file=sys.stderr)
"""


def main() -> None:
    """Make, shrink and compare."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**LARGE)).bfloat16().save_pretrained(root / "large")
        LlamaConfig(**SMALL, architectures=["LlamaForCausalLM"]).save_pretrained(root / "small")
        found = []
        for kind, least in (("a part at a time", 0), ("in memory", 2**60)):
            output = root / kind.replace(" ", "-")
            line = [sys.executable, "-c", SHRINK, *map(str, (root / "large", root / "small", output, least))]
            done = subprocess.run(line, capture_output=True, text=True, check=True)
            print(f"{kind}: {done.stderr.strip().splitlines()[-1]}", flush=True)
            found.append(
                {name: tensor for file in output.glob("*.safetensors") for name, tensor in load_file(file).items()}
            )
        first, second = found
        differ = sum(int((first[name] != second[name]).sum()) for name in first)
        print(f"{differ:,} of {sum(tensor.numel() for tensor in first.values()):,} numbers differ")


if __name__ == "__main__":
    main()
