"""A merge takes memory for a few pieces, whatever the number of layers."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import long
from tests.streaming.folders import hollow

# Of a model.
NUMBERS = 60 * 2**20
# Sets the limit on what a process may allocate, from what it has after its imports.
START = """
import resource, sys
from pathlib import Path
import torch
from fusionlab.merging import find_method, merge_states
from fusionlab.streaming import Recipe, open_folder, stream_merge
find_method("simple")
method, out, *folders = sys.argv[1:]
stored = [open_folder(folder, Path(folder)) for folder in folders]
chosen = find_method(method)
base = stored[0] if "base" in chosen.requires() else None
torch.empty(2**20).add_(1)
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + 160 * 2**20,) * 2)
"""
STREAMED = START + "stream_merge(stored, base, Recipe(chosen, {}, [0.5, 0.5]), Path(out))\n"
WHOLE = (
    START
    + """
def state(model):
    found = {}
    for name in model.tensors:
        with model.opened() as reader:
            found[name] = reader.read(name, 0, model.tensors[name].count)
    return found
merge_states([state(model) for model in stored], method)
"""
)


def zeros(folder: Path, layers: int) -> None:
    """A model of 240 MiB whose numbers take no space on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "known-to-nobody"}')
    hollow(folder / "model.safetensors", {f"layers.{i}": [NUMBERS // layers] for i in range(layers)})


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize(
    ("program", "method", "layers"),
    [
        pytest.param(STREAMED, "simple", 60, id="streamed", marks=long),
        pytest.param(STREAMED, "ties", 2, id="of two huge tensors"),
        pytest.param(STREAMED, "slerp", 20, id="by parameter", marks=long),
        pytest.param(WHOLE, "simple", 60, id="in memory"),
    ],
)
def test_memory_is_that_of_a_few_pieces(tmp_path: Path, program: str, method: str, layers: int) -> None:
    """Two models of 240 MiB are merged within 160 MiB of memory; merged in memory they break the limit.

    A method that looks at whole parameters has several in work only where they are small.
    """
    zeros(tmp_path / "a", layers)
    zeros(tmp_path / "b", layers)
    (tmp_path / "out").mkdir()
    line = [sys.executable, "-c", program, method, *(str(tmp_path / name) for name in ("out", "a", "b"))]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if program == WHOLE:
        assert done.returncode != 0
        assert "memory" in done.stderr.lower()
    else:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "out" / "model.safetensors").stat().st_size > 4 * NUMBERS
