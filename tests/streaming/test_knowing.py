"""What is known of models whose parameters are of several types."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from fusionlab import checkpoints
from fusionlab.errors import InputError
from fusionlab.merging import find_method, merge_states
from fusionlab.statistics import Statistics, basis_of
from fusionlab.statistics.gather import gather
from fusionlab.streaming import Recipe
from fusionlab.streaming.knowing import informed
from tests.checkpoints.test_conversions import CASES
from tests.streaming.folders import read
from tests.streaming.test_informed import MADE, batches, opened


def test_several_types_have_one_digest(tmp_path: Path) -> None:
    """Types that differ inside of a model are kept as it is read, so that statistics of it belong to its files."""
    model = MADE["llama"]()
    checkpoints.save(model, tmp_path / "a")
    file = tmp_path / "a" / "model.safetensors"
    save_file({name: x.half() if "norm" in name else x for name, x in load_file(file).items()}, file, {"format": "pt"})
    found = gather(checkpoints.load(tmp_path / "a"), batches("llama", 0), ("fisher",))
    method, models = find_method("fisher"), [opened(tmp_path / "a")] * 2
    assert informed(models, method, [found]) is not None
    with pytest.raises(InputError, match="fisher statistics of each model are needed"):
        informed(models, method, [])


def test_models_in_memory_tell_where_types_change(tmp_path: Path) -> None:
    """What transformers keeps in float32 whatever it is stored in, its digest on the disk does not have."""
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**CASES["DeepseekV3ForCausalLM"]))
    model.bfloat16().save_pretrained(tmp_path / "a")
    assert informed([opened(tmp_path / "a")] * 2, find_method("fisher"), []) is None


def test_types_are_the_widest(tmp_path: Path) -> None:
    """Of a model in bfloat16 and one in float32 the merge is in float32, by the numbers that each has; or as asked."""
    states: list[dict[str, Tensor]] = []
    found: list[dict[str, Statistics]] = []
    for seed, dtype in enumerate((torch.bfloat16, torch.float32)):
        torch.manual_seed(seed)
        model: nn.Module = MADE["llama"]().to(dtype)
        model.save_pretrained(tmp_path / f"{seed}")  # type: ignore[operator]
        states.append(model.state_dict())
        found.append(gather(model, batches("llama", seed), ("gram", "fisher")))
    models = [opened(tmp_path / f"{seed}") for seed in range(2)]
    wide = [{name: tensor.float() for name, tensor in state.items()} for state in states]
    for method in ("regmean", "fisher"):
        known = informed(models, find_method(method), found)
        assert known is not None
        out = tmp_path / method
        out.mkdir()
        known.merge(models, Recipe(find_method(method), {}, (0.5, 0.5)), out)
        moved = [
            {kind: replace(one, basis=basis_of(state)) for kind, one in own.items()}
            for own, state in zip(found, wide, strict=True)
        ]
        expected = merge_states(wide, method, statistics=moved)
        for name, tensor in read(out).items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
        rounded = tmp_path / f"{method} rounded"
        rounded.mkdir()
        known.merge(models, Recipe(find_method(method), {}, (0.5, 0.5), dtype=torch.float16), rounded)
        for name, tensor in read(rounded).items():
            assert tensor.dtype == torch.float16
            torch.testing.assert_close(tensor.float(), expected[name], rtol=1e-3, atol=1e-6)
