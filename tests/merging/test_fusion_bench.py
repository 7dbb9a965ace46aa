"""The same tensors merged by FusionBench, in an interpreter of its own.

``make test-peers`` makes that environment, in ``.venv-peers``; from then on these tests run with all others. The
variable ``FUSION_BENCH_PYTHON`` names another interpreter that has FusionBench.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab.merging import merge_states
from fusionlab.statistics import Fisher, Grams, LinearMap
from fusionlab.statistics.statistics import basis_of
from tests.merging.near_base import SHAPES, State, fine_tunes
from tests.merging.peers import python_with

PYTHON = python_with("fusion_bench", "FUSION_BENCH_PYTHON")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="make test-peers has not been run, nor FUSION_BENCH_PYTHON set")

# FusionBench averages convolutions.
NAMES = [name for name in SHAPES if name != "kernel"]
COUNTS = (2, 3)


@pytest.fixture(scope="module")
def merged_by_fusion_bench(tmp_path_factory: pytest.TempPathFactory) -> State:
    """What FusionBench makes of two and of three models, by number, method and parameter, all in one process."""
    folder = tmp_path_factory.mktemp("fusion_bench")
    given = {}
    for count in COUNTS:
        base, states = problem(count)
        for place, state in enumerate([base, *states]):
            given |= {f"{count}.{place}.{name}": tensor for name, tensor in state.items()}
        for place in range(1, count + 1):
            for what, tensors in (("gram", gram(place)), ("fisher", diagonal(place))):
                given |= {f"{count}.{what} {place}.{name}": tensor for name, tensor in tensors.items()}
    save_file(given, folder / "given.safetensors")
    assert PYTHON is not None
    script = Path(__file__).with_name("fusion_bench_merge.py")
    command = [PYTHON, str(script), str(folder / "given.safetensors"), str(folder / "found.safetensors")]
    subprocess.run(command, check=True, timeout=300)
    return load_file(folder / "found.safetensors")


def problem(count: int) -> tuple[State, list[State]]:
    """A base model and fine-tunes, in float64."""
    base, states = fine_tunes(count, seed=count)
    return {name: base[name] for name in NAMES}, [{name: state[name] for name in NAMES} for state in states]


def gram(place: int) -> State:
    """Gram matrices of what the matrices of the model in a place read."""
    generator = torch.Generator().manual_seed(place)
    read = {
        name: torch.randn(40, SHAPES[name][1], generator=generator, dtype=torch.float64) for name in ("tall", "wide")
    }
    return {name: rows.mT @ rows for name, rows in read.items()}


def diagonal(place: int) -> State:
    """Fisher information of the model in a place: of all but single numbers, of which FusionBench takes no norm."""
    generator = torch.Generator().manual_seed(100 + place)
    shapes = {name: SHAPES[name] for name in NAMES if SHAPES[name]}
    return {name: torch.rand(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


@pytest.mark.parametrize("alpha", [0.9, 1.0])
@pytest.mark.parametrize("count", COUNTS)
def test_regmean(merged_by_fusion_bench: State, count: int, alpha: float) -> None:
    """Of maps without biases, by sums over all rows, and nothing that draws to the mean."""
    _, states = problem(count)
    known = []
    for place, state in enumerate(states, start=1):
        # With the column of ones, which maps without biases do not look at.
        matrices = {name: torch.nn.functional.pad(matrix, (0, 1, 0, 1)) for name, matrix in gram(place).items()}
        maps, rows = {name: LinearMap(name, 1, None) for name in matrices}, dict.fromkeys(matrices, 40)
        known.append(Grams(
            architecture="", basis=basis_of(state), examples=40, matrices=matrices, rows=rows, maps=maps
        ))  # fmt: skip
    given = [{"gram": one} for one in known]
    merged = merge_states(states, "regmean", statistics=given, alpha=alpha, ridge=0.0, normalize=False)
    for name in gram(1):
        close(merged[name], merged_by_fusion_bench[f"{count}.regmean {alpha}.{name}"])


@pytest.mark.parametrize(("normalize", "theirs"), [("none", False), ("model", True)])
@pytest.mark.parametrize("count", COUNTS)
def test_fisher(merged_by_fusion_bench: State, count: int, normalize: str, theirs: bool) -> None:
    """Of the same Fisher information; how that is gathered differs."""
    _, states = problem(count)
    known = [
        {"fisher": Fisher(architecture="", basis=basis_of(state), examples=1, diagonal=diagonal(place))}
        for place, state in enumerate(states, start=1)
    ]
    merged = merge_states(states, "fisher", statistics=known, floor=0.0, normalize=normalize)
    for name in diagonal(1):
        close(merged[name], merged_by_fusion_bench[f"{count}.fisher {theirs}.{name}"])


@pytest.mark.parametrize(
    ("job", "method", "given"),
    [
        ("tsv_m", "tsv_m", {}),
        ("iso_c", "iso_c", {}),
        ("iso_cts 0.8", "iso_cts", {"common": 0.8}),
        ("iso_cts 0.4", "iso_cts", {"common": 0.4}),
        ("knots", "knots", {"density": 1.0}),
        ("wudi", "wudi", {"steps": 300, "learning_rate": 1e-5}),
    ],
)
@pytest.mark.parametrize("count", COUNTS)
def test_task_vectors(merged_by_fusion_bench: State, count: int, job: str, method: str, given: dict[str, Any]) -> None:
    """The same change of every parameter, matrices and others."""
    base, states = problem(count)
    merged = merge_states(states, method, base=base, **given)
    for name in NAMES:
        close(merged[name] - base[name], merged_by_fusion_bench[f"{count}.{job}.{name}"])


@pytest.mark.parametrize("count", COUNTS)
def test_masks_of_consensus(merged_by_fusion_bench: State, count: int) -> None:
    """An entry is kept where as many of FusionBench's TALL masks as k says are true."""
    base, states = problem(count)
    for k in (1, 2):
        merged = merge_states(states, "consensus", base=base, k=k, threshold=0.4)
        for name in NAMES:
            masks = sum(merged_by_fusion_bench[f"{count}.mask {place}.{name}"] for place in range(count))
            mean = sum(state[name] - base[name] for state in states) / count
            close(merged[name] - base[name], torch.where(masks >= k, mean, 0))


def close(found: Tensor, expected: Tensor) -> None:
    """To 1e-9 of the largest number; both compute in float64."""
    assert float((found - expected).abs().max()) <= 1e-9 * float(expected.abs().max())
