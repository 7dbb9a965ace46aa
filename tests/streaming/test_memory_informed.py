"""A merge by parts takes memory for a part of the parameters, whatever the number of layers."""

import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab.statistics import Fisher, Grams, LinearMap, Statistics
from fusionlab.statistics.files import save
from fusionlab.statistics.statistics import Digest
from fusionlab.symmetry import Alignment, blueprint
from tests.parts import long
from tests.streaming.folders import hollow

WIDTH, HIDDEN, LAYERS = 512, 512, 15
# Sets the limit on what a process may allocate, from what it has after its imports and after all is known of the
# models: mapped files of statistics count, though no more of them is in memory than is looked at.
START = """
import resource, sys
from pathlib import Path
import torch
from transformers import LlamaForCausalLM
from fusionlab.merging import find_method, merge_states
from fusionlab.statistics.files import load
from fusionlab.streaming import Recipe, open_folder
from fusionlab.streaming.knowing import informed
from fusionlab.streaming.moving import StoredTwin, informed_of_twins
from fusionlab.symmetry import Alignment, blueprint
methods, out, statistics, alignment, *folders, twin = sys.argv[1:]
if "ot" in methods.split():
    import ot
stored = [open_folder(folder, Path(folder)) for folder in folders]
chosen = [find_method(method) for method in methods.split()]
given = [load(statistics)] * 2
torch.linalg.cholesky_ex(torch.eye(600, dtype=torch.float64) @ torch.eye(600, dtype=torch.float64))
known = [informed(stored, method, given) for method in chosen]
moves = Alignment.load(alignment, blueprint(known[0].made.model))
twins = StoredTwin(stored[0], open_folder(twin, Path(twin)), moves)
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + 120 * 2**20,) * 2)
"""
STREAMED = (
    START
    + """
for method, one in zip(chosen, known):
    (folder := Path(out, method.name)).mkdir()
    one.merge(stored, Recipe(method, {}, [0.5, 0.5]), folder)
(folder := Path(out, "of twins")).mkdir()
with informed_of_twins(known[0], [twins, twins], given) as moved:
    moved.merge([twins.twin] * 2, Recipe(chosen[0], {}, [0.5, 0.5]), folder)
"""
)
WHOLE = (
    START
    + """
def state(model):
    found = {}
    for name in model.tensors:
        with model.opened() as reader:
            stored = model.tensors[name]
            found[name] = reader.read(name, 0, stored.count).reshape(stored.shape)
    return found
merge_states([state(model) for model in stored], methods, statistics=given)
"""
)


def zeros(folder: Path) -> dict[str, tuple[int, ...]]:
    """A Llama of 100 MiB whose numbers take no space on the disk; the shapes of its state."""
    folder.mkdir()
    sizes = {"hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "vocab_size": 32}
    config = LlamaConfig(**sizes, num_attention_heads=8, architectures=["LlamaForCausalLM"], dtype="float32")
    config.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in LlamaForCausalLM(config).state_dict().items()}
    hollow(folder / "model.safetensors", shapes)
    return shapes


def known(shapes: dict[str, tuple[int, ...]], method: str) -> Statistics:
    """Gram matrices of all maps, or Fisher information of all parameters."""
    digest = Digest()
    for name in sorted(shapes):
        digest.add(name, torch.zeros(shapes[name]))
    basis = digest.hexdigest()
    if method == "fisher":
        diagonal = {name: torch.ones(shape) for name, shape in shapes.items()}
        return Fisher(architecture="", basis=basis, examples=1, diagonal=diagonal)
    weights = [name for name, shape in shapes.items() if len(shape) == 2 and "embed" not in name]
    shared = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
    inputs = {name: ".".join(shared.get(part, part) for part in name.split(".")) for name in weights}
    matrices = {name: torch.eye(shapes[name][1] + 1) for name in set(inputs.values())}
    maps = {name: LinearMap(read, 1, None) for name, read in inputs.items()}
    rows = dict.fromkeys(matrices, 1)
    return Grams(architecture="", basis=basis, examples=1, matrices=matrices, rows=rows, maps=maps)


def moved(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A random alignment of such models, and a twin of one; a number tells it from the model: all others are zero."""
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder / "a"))
    Alignment.random(blueprint(model), torch.Generator().manual_seed(0)).save(folder / "alignment")
    (folder / "twin").mkdir()
    shutil.copy(folder / "a" / "config.json", folder / "twin")
    hollow(folder / "twin" / "model.safetensors", shapes)
    with (folder / "twin" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(struct.pack("<f", 1.0))


@long
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize(
    ("program", "methods"),
    [
        pytest.param(STREAMED, "regmean", id="a part at a time"),
        pytest.param(STREAMED, "regmean circuit ot", id="a part at a time, by more methods"),
        pytest.param(WHOLE, "fisher", id="in memory"),
    ],
)
def test_memory_is_that_of_a_part(tmp_path: Path, program: str, methods: str) -> None:
    """Two models of 100 MiB are merged within 120 MiB of memory; merged in memory they break the limit."""
    shapes = zeros(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "out").mkdir()
    save([known(shapes, methods.split(maxsplit=1)[0])], tmp_path / "statistics")
    moved(tmp_path, shapes)
    names = ("out", "statistics", "alignment", "a", "b", "twin")
    line = [sys.executable, "-c", program, methods, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if program == WHOLE:
        assert done.returncode != 0
        assert "memory" in done.stderr.lower()
    else:
        assert done.returncode == 0, done.stderr
        count = sum(math.prod(shape) for shape in shapes.values())
        for method in [*methods.split(), "of twins"]:
            assert (tmp_path / "out" / method / "model.safetensors").stat().st_size > 4 * count > 100 * 2**20
