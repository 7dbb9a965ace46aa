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
