"""The operations of a pass are those of its products, counted on the tensors that the model has."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab.evaluation.preservation import random_logits
from fusionlab.growing.cost import operations
from fusionlab.symmetry import blueprint

SIZES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30,
}  # fmt: skip
VIT: dict[str, Any] = {**SIZES, "image_size": 8, "patch_size": 4}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=16)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_key_value_heads=1, num_local_experts=3)),
    "vit": lambda: ViTForImageClassification(ViTConfig(**VIT)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_operations_are_those_of_a_copy_in_float64(name: str, dtype: torch.dtype) -> None:
    """No tensor is copied, and the model is left as it was."""
    model = MODELS[name]().to(dtype)
    inputs, before = blueprint(model).inputs, copy.deepcopy(model.state_dict())
    seen: set[int] = set()
    tensors = {parameter.data_ptr() for parameter in model.parameters()}
    model.register_forward_pre_hook(lambda m, _: seen.update(p.data_ptr() for p in m.parameters()))
    kind = getattr(model.config, "_experts_implementation", None)
    found = operations(model, inputs)
    assert seen == tensors
    assert model.training
    assert getattr(model.config, "_experts_implementation", None) == kind
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    whole: nn.Module = copy.deepcopy(model).double().eval()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        random_logits(whole, inputs, count=1)
    assert found == int(counter.get_total_flops()) > 0
