"""What files hold becomes what transformers makes of it, and comes back from that as it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from fusionlab import checkpoints
from fusionlab.checkpoints.conversions import Group, groups_of
from fusionlab.checkpoints.weightless import Weightless, weightless

TEXT: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 32,
}  # fmt: skip
EXPERTS = TEXT | {"moe_intermediate_size": 16, "num_experts_per_tok": 2, "num_experts": 4}
CASES: dict[str, dict[str, Any]] = {
    "MixtralForCausalLM": TEXT | {"num_local_experts": 3, "num_experts_per_tok": 2},
    "Qwen2MoeForCausalLM": EXPERTS | {"shared_expert_intermediate_size": 20},
    "Qwen3MoeForCausalLM": EXPERTS | {"head_dim": 6},
    "DeepseekV3ForCausalLM": TEXT
    | {"moe_intermediate_size": 16, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
    | {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 6}
    | {"first_k_dense_replace": 1},
    "ViTForImageClassification": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 8,
        "patch_size": 4, "num_labels": 3,
    },
    "LlamaForCausalLM": TEXT,
}  # fmt: skip


def stored(folder: Path, name: str) -> tuple[Weightless, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A folder: its model without weights, the tensors in its file, and those of the model."""
    cls = getattr(transformers, name)
    torch.manual_seed(0)
    checkpoints.save(cls(cls.config_class(**CASES[name])), folder)
    state = load_file(folder / "model.safetensors")
    config = checkpoints.load(folder).config.to_dict()
    made = weightless(config, folder, {key: tuple(tensor.shape) for key, tensor in state.items()})
    assert made is not None
    return made, state, checkpoints.load(folder).state_dict()


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(tmp_path: Path, name: str) -> None:
    """To the bit: every parameter is that of the class, every tensor that of the file, each once."""
    made, state, expected = stored(tmp_path / "a", name)
    groups: dict[str, Group] = {group.made[0]: group for group in made.groups.values()}
    found: dict[str, torch.Tensor] = {}
    back: dict[str, torch.Tensor] = {}
    for group in groups.values():
        read = group.read({key: state[key] for key in group.stored})
        assert sorted(read) == sorted(group.made)
        found |= read
        back |= group.written(read)
    assert back.keys() == state.keys()
    assert sum(len(group.stored) for group in groups.values()) == len(state)
    for key, tensor in back.items():
        assert torch.equal(tensor, state[key]), key
    for key, tensor in expected.items():
        assert torch.equal(found[made.names[key]], tensor), key


def test_what_has_no_place(tmp_path: Path) -> None:
    """A tensor too many, or of another shape, or an expert that is missing."""
    made, state, _ = stored(tmp_path / "a", "MixtralForCausalLM")
    shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
    expert = "model.layers.0.block_sparse_moe.experts.1.w1.weight"
    assert groups_of(made.model, shapes) is not None
    assert groups_of(made.model, shapes | {"more": (3,)}) is None
    assert groups_of(made.model, shapes | {"lm_head.weight": (49, 24)}) is None
    assert groups_of(made.model, {key: shape for key, shape in shapes.items() if key != expert}) is None
    assert groups_of(made.model, shapes | {expert: (41, 24)}) is None
