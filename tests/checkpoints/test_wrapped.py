"""Parameters that PEFT changes by name (``target_parameters``): what it merges is read, merged and written again."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from fusionlab import checkpoints
from fusionlab.checkpoints.adapters import placed, read_adapter
from fusionlab.checkpoints.changes import Stack
from fusionlab.checkpoints.extraction import merged_changes, write_adapter
from fusionlab.checkpoints.wrapped import named_in, wrapped_places
from fusionlab.errors import InputError
from tests.checkpoints.test_adapters import assert_close, made
from tests.checkpoints.test_extraction import written

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "vocab_size": 20, "max_position_embeddings": 16, "num_experts_per_tok": 2,
}  # fmt: skip
TWO = {**SMALL, "num_hidden_layers": 2, "intermediate_size": 12}
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
Build = Callable[[], PreTrainedModel]
CASES: dict[str, tuple[Build, dict[str, Any]]] = {
    "mixtral": (
        lambda: MixtralForCausalLM(MixtralConfig(**SMALL, intermediate_size=12, num_local_experts=3)),
        {"target_parameters": EXPERTS, "rank_pattern": {"gate_up_proj": 4}, "alpha_pattern": {"experts.down_proj": 7}},
    ),
    "qwen3_moe": (
        lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**TWO, moe_intermediate_size=8, num_experts=4, mlp_only_layers=[0])),
        {"target_parameters": ["gate_up_proj", "mlp.gate.weight"], "target_modules": ["q_proj"], "use_rslora": True},
    ),
    # Matrices of (in, out), squares among them, and a parameter of two dimensions.
    "gpt_oss": (
        lambda: GptOssForCausalLM(GptOssConfig(**SMALL, intermediate_size=16, num_local_experts=3)),
        {"target_parameters": ["experts.down_proj", "experts.gate_up_proj_bias", "experts.gate_up_proj"]},
    ),
}


def adapted(folder: Path, name: str, **other: object) -> PreTrainedModel:
    """A base model and an adapter in two folders; what PEFT makes of both."""
    build, options = CASES[name]
    return made(folder, build, {"r": 2, "target_modules": [], **options, **other})


@pytest.mark.parametrize("name", CASES)
def test_an_adapter_is_read_as_the_model_that_peft_merges(tmp_path: Path, name: str) -> None:
    expected = adapted(tmp_path, name)
    assert_close(checkpoints.load(tmp_path / "adapter"), expected)
    base = checkpoints.load(tmp_path / "base").state_dict()
    changed = {n.rpartition(".")[2] for n, x in expected.state_dict().items() if not torch.allclose(x, base[n])}
    assert {target.rpartition(".")[2] for target in CASES[name][1]["target_parameters"]} <= changed


def by_peft(base: PreTrainedModel, folder: Path) -> PreTrainedModel:
    loaded: Any = peft.PeftModel.from_pretrained(copy.deepcopy(base), folder)
    return loaded.merge_and_unload()


@pytest.mark.parametrize("name", CASES)
def test_a_difference_becomes_such_an_adapter(tmp_path: Path, name: str) -> None:
    """The model again at a full rank, by PEFT and here; experts that do not differ are no matter.

    Nor are layers of another name than experts have today, which PEFT takes for experts in older files.
    """
    adapted(tmp_path, name)
    base = checkpoints.load(tmp_path / "base")
    model = copy.deepcopy(base)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "experts" in key or ".mlp.up_proj" in key or ".mlp.down_proj" in key:
                parameter[1:] += torch.randn(parameter[1:].shape)
    (tmp_path / "new").mkdir()
    (tmp_path / "base").rename(tmp_path / "new" / "base")
    found = written(model, tmp_path / "new", 64)
    assert not found.saved
    assert found.stacks
    assert min(found.captured.values()) == pytest.approx(1, abs=1e-6)
    assert_close(checkpoints.load(tmp_path / "new" / "adapter"), model, 1e-5)
    assert_close(by_peft(base, tmp_path / "new" / "adapter"), model, 1e-5)


def two_adapters(folder: Path, name: str) -> tuple[Path, PreTrainedModel, PreTrainedModel]:
    """Adapters of one base model on experts alone, in ``one/adapter`` and ``two/adapter``; what PEFT makes of each."""
    first = adapted(folder / "one", name, target_parameters=EXPERTS)
    base = folder / "one" / "base"
    shutil.copytree(folder / "one" / "adapter", folder / "two" / "adapter")
    file = folder / "two" / "adapter" / "adapter_model.safetensors"
    save_file({key: torch.randn(tensor.shape) for key, tensor in load_file(file).items()}, file)
    return base, first, by_peft(checkpoints.load(base), folder / "two" / "adapter")


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_a_mean_of_adapters_is_made_of_factors(tmp_path: Path, name: str) -> None:
    """What PEFT makes of the mean is the mean of what it makes of both; a lower rank captures what is said."""
    place, *both = two_adapters(tmp_path, name)
    base = checkpoints.load(place)
    adapters = [read_adapter(tmp_path / place / "adapter") for place in ("one", "two")]
    for rank in (8, 2):
        found = merged_changes(adapters, [0.25, 0.75], base, rank)
        assert found is not None
        place = tmp_path / str(rank)
        place.mkdir()
        write_adapter(found, place, str(base.name_or_path), "CAUSAL_LM")
        state, before = by_peft(base, place).state_dict(), base.state_dict()
        for key, share in found.captured.items():
            weight = key if key in state else f"{key}.weight"
            whole = sum(w * (m.state_dict()[weight] - before[weight]) for w, m in zip([0.25, 0.75], both, strict=True))
            error = float((state[weight] - before[weight] - whole).norm() / whole.norm())
            assert error == pytest.approx((1 - min(share, 1) ** 2) ** 0.5, abs=2e-3)
            assert rank == 2 or error < 1e-5


BAD: dict[str, tuple[Callable[[dict[str, Any], dict[str, Tensor]], object], str]] = {
    "no list": (lambda c, t: c.update(target_parameters="experts"), "target_parameters is 'experts'; expected a list"),
    "one more than there are factors": (
        lambda c, t: c.update(target_parameters=[*EXPERTS, "mlp.experts.more"]),
        "",
    ),
    "fewer parameters": (lambda c, t: c.update(target_parameters=EXPERTS[:1]), "2 pairs of factors for gate_up_proj"),
    "other factors": (
        lambda c, t: t.update({key: x[:-1].clone() for key, x in t.items() if "lora_A" in key}),
        "factors of shapes .*expected the adapter's own base model",
    ),
    "none of the inner ones": (
        lambda c, t: [t.update({k.replace("base_layer", "base_layer.base_layer"): t.pop(k)}) for k in list(t)],
        "holds no factors of every parameter of",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_one_sentence(tmp_path: Path, name: str) -> None:
    expected = adapted(tmp_path, "mixtral")
    edit, told = BAD[name]
    config, file = tmp_path / "adapter" / "adapter_config.json", tmp_path / "adapter" / "adapter_model.safetensors"
    content, tensors = json.loads(config.read_text()), load_file(file)
    edit(content, tensors)
    config.write_text(json.dumps(content))
    save_file(tensors, file)
    if not told:
        assert_close(checkpoints.load(tmp_path / "adapter"), expected)
        return
    with pytest.raises(InputError, match=told) as refused:
        checkpoints.load(tmp_path / "adapter")
    assert "\n" not in str(refused.value)


def test_names_are_full_or_ends() -> None:
    targets = ["mlp.experts.gate_up_proj", "down_proj", "x.layers.1.mlp.experts.more"]
    assert named_in(targets, "x.layers.0.mlp.experts") == {"gate_up_proj", "down_proj"}
    assert named_in(targets, "x.layers.1.mlp.experts") == {"gate_up_proj", "down_proj", "more"}
    assert named_in(targets, "own_mlp.experts") == {"down_proj"}
    assert wrapped_places(["a.b.x", "a.c.x", "a.b.y"]) == ["a.b.base_layer", "a.c", "a.b"]


def test_one_expert_is_not_turned(tmp_path: Path) -> None:
    """As PEFT has it: its product is of (rows, columns) whatever the class says."""
    config = GptOssConfig(**{**SMALL, "num_experts_per_tok": 1}, intermediate_size=16, num_local_experts=1)
    expected = made(
        tmp_path, lambda: GptOssForCausalLM(config), {"r": 2, "target_modules": [], "target_parameters": EXPERTS[1:]}
    )
    assert_close(checkpoints.load(tmp_path / "adapter"), expected)
    _, stacks = placed(read_adapter(tmp_path / "adapter"), expected, "it")
    assert [isinstance(one, Stack) and one.is_turned for one in stacks.values()] == [False]
