"""The samples are what they promise: small, of sizes that tell themselves apart, sound in float64, repeatable."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry.architectures import DESCRIBED
from tests.parts import one_in
from tests.symmetry.infer.cases import SAMPLES, Sample
from tests.symmetry.written import WRITTEN

# Sizes of one config that could be taken for each other if they were equal.
SIZES = (
    "vocab_size",
    "hidden_size",
    "d_model",
    "n_embd",
    "intermediate_size",
    "ffn_hidden_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "d_ff",
    "n_inner",
    "num_attention_heads",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "head_dim",
    "d_kv",
    "kv_lora_rank",
    "q_lora_rank",
    "max_position_embeddings",
)
# Axes that a class makes two long, whatever its config says: kinds of segments, kernels, coordinates.
TWO = ("seg_embed", "downsampling_layer.1.weight", "downsample.1.weight", "continuous_position_bias_mlp.0.weight")


@pytest.fixture(params=one_in(3, SAMPLES), ids=lambda sample: sample.name, scope="module")
def sample(request: pytest.FixtureRequest) -> Sample:
    return request.param


@pytest.fixture(scope="module")
def model(sample: Sample) -> nn.Module:
    torch.manual_seed(0)
    return random(sample.build().double().eval())


@torch.no_grad()
def random(model: nn.Module) -> nn.Module:
    """Generic parameters: what starts at zero or one hides what is computed with it."""
    draw = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        if parameter.ndim > 1:
            parameter.copy_(noise * max(parameter[:1].numel(), 1) ** -0.5)
        else:
            parameter.copy_(0.3 * noise.clamp(-1.5, 1.5) + bool((parameter > 0).all()))
    return model


@pytest.fixture(scope="module")
def found(sample: Sample, model: nn.Module) -> list[Tensor]:
    return outputs(sample, model)


@torch.no_grad()
def outputs(sample: Sample, model: nn.Module) -> list[Tensor]:
    """All tensors but a loss that one call gives, on inputs that are the same at every call."""
    inputs = sample.inputs(torch.Generator().manual_seed(2))
    given = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    return [tensor for tensor in tensors(model(**given)) if tensor.ndim]


def tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def test_names_are_unique() -> None:
    names = [sample.name for sample in SAMPLES]
    assert sorted(set(names)) == sorted(names)


def test_nobody_wrote_the_type_down(model: nn.Module) -> None:
    config = getattr(model, "config", None)
    assert getattr(config, "model_type", None) not in {*WRITTEN.names, *DESCRIBED.names}


def test_outputs_in_float64_are_finite_and_vary(found: list[Tensor]) -> None:
    assert torch.isfinite(found[0]).all()
    assert found[0].std() > 1e-3


def test_the_same_call_gives_the_same(sample: Sample, model: nn.Module) -> None:
    for first, second in zip(outputs(sample, model), outputs(sample, model), strict=True):
        torch.testing.assert_close(first, second)


def test_examples_of_a_batch_differ(found: list[Tensor]) -> None:
    assert len(found[0]) in (2, 3)
    assert (found[0][0] - found[0][1]).abs().max() > 1e-3


def test_no_axis_is_two_long(model: nn.Module) -> None:
    twos = [name for name, parameter in model.named_parameters() if 2 in parameter.shape]
    assert not [name for name in twos if not name.endswith(TWO)]


def test_model_is_small(model: nn.Module) -> None:
    assert sum(parameter.numel() for parameter in model.parameters()) < 60_000


def test_sizes_of_a_config_differ(model: nn.Module) -> None:
    for config in [module.config for module in model.modules() if hasattr(module, "config")]:
        sizes = {name: vars(config)[name] for name in SIZES if isinstance(vars(config).get(name), int)}
        assert len(set(sizes.values())) == len(sizes), sizes
