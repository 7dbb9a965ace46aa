"""Growing by parts takes memory for the largest part and what becomes of it, whatever the number of layers."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import transformers

from fusionlab.checkpoints.weightless import without_memory
from tests.parts import long
from tests.streaming.folders import hollow

# Of a layer 2.6 million numbers, of its largest part 1 million; of the model 97 MiB, and of the grown one 117.
SMALL = {
    "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 9, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 600, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
LARGE = SMALL | {"intermediate_size": 1280, "num_hidden_layers": 10}
FILES = 4
# Sets the limit on what a process may allocate, from what it has after its imports and once it knows the class.
PROGRAM = """
import resource, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from fusionlab.checkpoints.weightless import without_memory
from fusionlab.commands import grow, grow_stream
from fusionlab.symmetry.any_model import blueprint
small, large, out = sys.argv[1:]
torch.set_num_threads(1)
for folder in (small, large):
    with without_memory():
        model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder))
    blueprint(model)
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + 96 * 2**20,) * 2)
for least, output in ((0, out), (2**60, out + "-in-memory")):
    grow_stream.IN_MEMORY = least
    grow.run([small, "--like", large + "/config.json", "--output", output])
"""
# Filled in float64, where it has 30 MiB; the largest part 0.4 million numbers.
FILLED = SMALL | {"hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 7, "vocab_size": 64}
FILLING = """
import resource, sys
import torch
from transformers import LlamaForCausalLM
from fusionlab.commands import grow, grow_stream
from fusionlab.growing import filling
from fusionlab.matching.presets import preset
from fusionlab.streaming import filled, remade
from fusionlab.symmetry.any_model import blueprint
small, large, out = sys.argv[1:]
filling.preset = filled.preset = lambda name: preset(name, start="known", sweeps=1)  # less to wait for
torch.set_num_threads(1)
for folder in (small, large):
    blueprint(LlamaForCausalLM.from_pretrained(folder))
torch.linalg.svd(torch.eye(600, dtype=torch.float64))
remade.MOST = 1  # a unit at a time, however many processors there are
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + 64 * 2**20,) * 2)
for least, output in ((0, out), (2**60, out + "-in-memory")):
    grow_stream.IN_MEMORY = least
    grow.run([small, "--like", large, "--fill", "--output", output])
"""


def zeros(folder: Path, sizes: Mapping[str, Any] = SMALL) -> Path:
    """A Llama in several files, whose numbers take no space on the disk."""
    config = transformers.LlamaConfig(**sizes, architectures=["LlamaForCausalLM"])
    config.save_pretrained(folder)
    with without_memory():
        state = transformers.LlamaForCausalLM(config).state_dict()
    index = {}
    for number in range(FILES):
        file = f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        names = list(state)[number::FILES]
        hollow(folder / file, {name: list(state[name].shape) for name in names})
        index |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def limited(folder: Path, program: str, *models: Path) -> None:
    """Run a program of two models that writes a part at a time, and then fails to do the same in memory."""
    line = [sys.executable, "-c", program, *models, folder / "out"]
    # What is freed is given back at once, so that the limit is on what is held.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**16)}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert "by itself" in done.stdout, done.stderr
    assert done.returncode != 0
    assert "memory" in done.stderr.lower()
    assert not (folder / "out-in-memory").exists()


@long
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_memory_is_that_of_the_largest_part(tmp_path: Path) -> None:
    """A model of 97 MiB becomes one of 117 MiB within 96 MiB of memory; grown in memory it breaks the limit.

    The grown model is in files as large as the small one's largest.
    """
    transformers.LlamaConfig(**LARGE).save_pretrained(tmp_path / "large")
    limited(tmp_path, PROGRAM, zeros(tmp_path / "small"), tmp_path / "large")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["num_hidden_layers"] == 10
    sizes = [file.stat().st_size for file in (tmp_path / "out").glob("*.safetensors")]
    assert len(sizes) > FILES
    assert sum(sizes) > 117 * 2**20
    assert max(sizes) <= max(file.stat().st_size for file in (tmp_path / "small").glob("*.safetensors"))


@long
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_memory_of_filling_is_that_of_the_largest_part(tmp_path: Path) -> None:
    """A model of 40 MiB in float64 is filled within 64 MiB of memory; filled in memory it breaks the limit."""
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, sizes in ((small, {}), (large, {"intermediate_size": 512, "num_hidden_layers": 8})):
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**FILLED | sizes)).save_pretrained(folder)
    limited(tmp_path, FILLING, small, large)
    assert not [path for path in (tmp_path / "out").iterdir() if path.is_dir()]
