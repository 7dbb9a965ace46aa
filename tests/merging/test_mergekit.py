"""The same checkpoints merged by mergekit, in an interpreter of its own.

What it depends on need not fit what we depend on. ``make test-peers`` makes that environment, in ``.venv-peers``; from
then on these tests run with all others. The variable ``MERGEKIT_PYTHON`` names another interpreter that has mergekit.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab.merging import merge_states
from fusionlab.merging.draws import drawn
from fusionlab.merging.ingredients import Ingredients
from tests.merging.peers import python_with

PYTHON = python_with("mergekit-yaml", "MERGEKIT_PYTHON")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="make test-peers has not been run, nor is MERGEKIT_PYTHON set")

State = dict[str, Tensor]
# Of every parameter 3/8 of the entries is a whole number, which mergekit would round down and we to the nearest.
WEIGHTS, DENSITY, LAMBDA, SEED = [0.3, 0.7], 0.375, 0.8, 5
EPSILON = GAMMA = 0.125
# Of a parameter's largest number; both compute in float32.
TOLERANCE = 1e-6
NAMES = ("base", "first", "second")
# By a name of ours: mergekit's method, its base model, its parameters, and those of each model.
DARE = {"rescale": False, "lambda": 1 / DENSITY}
JOBS: dict[str, tuple[str, str | None, dict[str, Any], dict[str, Any]]] = {
    "task_arithmetic": ("task_arithmetic", "base", {"lambda": LAMBDA}, {}),
    "ties": ("ties", "base", {"lambda": LAMBDA, "normalize": True}, {"density": DENSITY}),
    "dare linear": ("dare_linear", "base", {**DARE, "normalize": False}, {"density": DENSITY}),
    "dare ties": ("dare_ties", "base", {**DARE, "normalize": True}, {"density": DENSITY}),
    "slerp 0.3": ("slerp", "first", {"t": 0.3}, {}),
    "slerp 0.5": ("slerp", "first", {"t": 0.5}, {}),
    "karcher": ("karcher", None, {"max_iter": 10, "tol": 1e-5}, {}),
    "stock": ("model_stock", "base", {}, {}),
    "breadcrumbs": ("breadcrumbs", "base", {"lambda": LAMBDA}, {"density": DENSITY, "gamma": GAMMA}),
    "della ties": ("della", "base", {"rescale": False, "lambda": LAMBDA}, {"density": DENSITY, "epsilon": EPSILON}),
    "della linear": (
        "della_linear",
        "base",
        {"rescale": False, "lambda": LAMBDA, "normalize": False},
        {"density": DENSITY, "epsilon": EPSILON},
    ),
    "sce": ("sce", "base", {"select_topk": DENSITY}, {}),
    "sce whole": ("sce", "base", {"select_topk": 1.0}, {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model and two others, saved as transformers saves them."""
    path = tmp_path_factory.mktemp("checkpoints")
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=24,
        num_hidden_layers=2,
        intermediate_size=20,
        num_attention_heads=3,
        num_key_value_heads=3,
        bos_token_id=1,
        eos_token_id=2,
    )
    for seed, name in enumerate(NAMES):
        torch.manual_seed(seed)
        model, draw = LlamaForCausalLM(config), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
        model.save_pretrained(path / name)
    return path


@pytest.fixture(scope="module")
def models(folder: Path) -> list[State]:
    """The two others."""
    return [load_file(folder / name / "model.safetensors") for name in NAMES[1:]]


@pytest.fixture(scope="module")
def base(folder: Path) -> State:
    return load_file(folder / "base" / "model.safetensors")


@pytest.fixture(scope="module")
def merged_by_mergekit(folder: Path, models: list[State], base: State) -> dict[str, State]:
    """What mergekit makes of the two models, by job, all in one process."""
    configs = {}
    for job, (method, base_model, parameters, of_models) in JOBS.items():
        entries = [
            {"model": str(folder / name), "parameters": {"weight": weight, **of_models}}
            for name, weight in zip(NAMES[1:], WEIGHTS, strict=True)
        ]
        config: dict[str, Any] = {"merge_method": method, "dtype": "float32", "parameters": parameters}
        config |= {"models": entries} | ({} if base_model is None else {"base_model": str(folder / base_model)})
        configs[str(folder / "merged" / job)] = config
    save_file(drawn_by_us(models), folder / "draws.safetensors")
    settings = folder / "settings.json"
    settings.write_text(json.dumps({"configs": configs, "draws": str(folder / "draws.safetensors")}))
    assert PYTHON is not None
    script = Path(__file__).with_name("mergekit_merge.py")
    subprocess.run([PYTHON, str(script), str(settings)], check=True, timeout=300)
    return {job: load_file(folder / "merged" / job / "model.safetensors") for job in JOBS}


def drawn_by_us(models: list[State]) -> State:
    """The numbers from 0 to 1 that our methods draw for each model: entries with one below a probability are kept."""
    ingredients = Ingredients(models, WEIGHTS, None, (), None, None, SEED)
    return {f"{place}.{name}": draws for name in models[0] for place, draws in enumerate(drawn(ingredients, name))}


def assert_same(found: State, expected: State, tolerance: float = TOLERANCE) -> None:
    """No parameter differs by more than the tolerance, relative to its largest number."""
    assert found.keys() == expected.keys()
    worst = max(float((found[n] - expected[n]).abs().max() / expected[n].abs().max()) for n in expected)
    assert worst < tolerance


def test_task_arithmetic(models: list[State], base: State, merged_by_mergekit: dict[str, State]) -> None:
    """With weights and a factor."""
    merged = merge_states(models, "task_arithmetic", WEIGHTS, base=base, lambda_=LAMBDA)
    assert_same(merged, merged_by_mergekit["task_arithmetic"])


def test_ties(models: list[State], base: State, merged_by_mergekit: dict[str, State]) -> None:
    """Parameter by parameter, since mergekit trims each by itself."""
    merged = {}
    for name in base:
        alone = [{name: state[name]} for state in models]
        merged |= merge_states(alone, "ties", WEIGHTS, base={name: base[name]}, density=DENSITY, lambda_=LAMBDA)
    assert_same(merged, merged_by_mergekit["ties"])


@pytest.mark.parametrize("combination", ["linear", "ties"])
def test_dare(models: list[State], base: State, merged_by_mergekit: dict[str, State], combination: str) -> None:
    """With the same masks.

    mergekit's rescaling restores the sum of magnitudes in place of dividing by the density, as the paper does; so it
    is left out there, and its factor divides.
    """
    merged = merge_states(models, "dare", WEIGHTS, base=base, density=DENSITY, combination=combination, seed=SEED)
    assert_same(merged, merged_by_mergekit[f"dare {combination}"])


@pytest.mark.parametrize("t", [0.3, 0.5])
def test_slerp(models: list[State], merged_by_mergekit: dict[str, State], t: float) -> None:
    """mergekit's first model is the one it calls base."""
    assert_same(merge_states(models, "slerp", t=t), merged_by_mergekit[f"slerp {t}"])


def test_karcher(models: list[State], merged_by_mergekit: dict[str, State]) -> None:
    """Equal weights are all it knows; its angles are float32's."""
    assert_same(merge_states(models, "karcher"), merged_by_mergekit["karcher"], 10 * TOLERANCE)


def test_stock(models: list[State], base: State, merged_by_mergekit: dict[str, State]) -> None:
    """Equal weights, and task vectors at acute angles, which it does not ask for."""
    for name in base:
        assert float(((models[0][name] - base[name]) * (models[1][name] - base[name])).sum()) > 0
    assert_same(merge_states(models, "stock", base=base), merged_by_mergekit["stock"])


def test_breadcrumbs(models: list[State], base: State, merged_by_mergekit: dict[str, State]) -> None:
    """The same entries of every parameter, neither the largest nor the smallest."""
    given = {"density": DENSITY, "gamma": GAMMA, "lambda_": LAMBDA}
    assert_same(merge_states(models, "breadcrumbs", WEIGHTS, base=base, **given), merged_by_mergekit["breadcrumbs"])


@pytest.mark.parametrize("combination", ["linear", "ties"])
def test_della(models: list[State], base: State, merged_by_mergekit: dict[str, State], combination: str) -> None:
    """With the same numbers drawn, and divided by the probabilities that mergekit computes.

    mergekit's own rescaling restores the sum of magnitudes of a parameter, so it is left out as for DARE.
    """
    given = {"density": DENSITY, "epsilon": EPSILON, "lambda_": LAMBDA, "combination": combination, "seed": SEED}
    merged = merge_states(models, "della", WEIGHTS, base=base, **given)
    assert_same(merged, merged_by_mergekit[f"della {combination}"])


@pytest.mark.parametrize(("job", "density"), [("sce", DENSITY), ("sce whole", 1.0)])
def test_sce(models: list[State], base: State, merged_by_mergekit: dict[str, State], job: str, density: float) -> None:
    """It knows no weights."""
    assert_same(merge_states(models, "sce", base=base, density=density), merged_by_mergekit[job])
