"""Shrinking by parts takes memory for the largest part and what becomes of it, whatever the number of layers."""

import json
import sys
from pathlib import Path

import pytest
import transformers

from tests.parts import long
from tests.streaming.test_memory_grown import limited, zeros

# Of a layer 0.7 million numbers; of the model 81 MiB, and of the shrunk one 20. What parts take differs between
# processors.
LARGE = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 32, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 300, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
SMALL = LARGE | {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 6, "num_hidden_layers": 12}
# Sets the limit on what a process may allocate, from what it has after its imports and once it knows the class.
PROGRAM = """
import os, resource, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from fusionlab.checkpoints.weightless import without_memory
from fusionlab.commands import shrink, shrink_stream
from fusionlab.symmetry.any_model import blueprint
large, small, out = sys.argv[1:]
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
torch.set_num_threads(1)
torch.linalg.eigh(torch.eye(300, dtype=torch.float64) @ torch.eye(300, dtype=torch.float64))
for folder in (large, small):
    with without_memory():
        model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder))
    blueprint(model)
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + 66 * 2**20,) * 2)
for least, output in ((0, out), (2**60, out + "-in-memory")):
    shrink_stream.IN_MEMORY = least
    shrink.run([large, "--like", small + "/config.json", "--output", output])
"""


@long
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_memory_is_that_of_the_largest_part(tmp_path: Path) -> None:
    """A model of 81 MiB becomes one of 20 MiB within 66 MiB of memory; shrunk in memory it breaks the limit."""
    transformers.LlamaConfig(**SMALL).save_pretrained(tmp_path / "small")
    limited(tmp_path, PROGRAM, zeros(tmp_path / "large", LARGE), tmp_path / "small")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["num_hidden_layers"] == 12
    assert sum(file.stat().st_size for file in (tmp_path / "out").glob("*.safetensors")) > 20 * 2**20
