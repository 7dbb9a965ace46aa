"""Transformers that denoise: blocks of diffusers, and a small network of them."""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from tests.symmetry.infer.cases.sample import Sample

WIDTH, WORDS = 24, 20


def named(module: str, name: str) -> Any:
    """A class of diffusers, which takes seconds to import, when it is needed."""
    return getattr(importlib.import_module(f"diffusers.{module}"), name)


def block() -> nn.Module:
    """A block as latent diffusion has it: attention to itself, to words, and gated units."""
    return named("models.attention", "BasicTransformerBlock")(
        WIDTH, 4, 6, cross_attention_dim=WORDS, activation_fn="geglu"
    )


def two_streams() -> nn.Module:
    """A block of two streams that attend to each other, with norms of queries and keys, as FLUX has it."""
    return named("models.transformers.transformer_flux", "FluxTransformerBlock")(WIDTH, 3, 8)


def unet() -> nn.Module:
    """Convolutions and attention to words on the way down and up."""
    return named("models.unets.unet_2d_condition", "UNet2DConditionModel")(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 12),
        norm_num_groups=4, cross_attention_dim=WORDS, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip


def of_block(draw: torch.Generator) -> dict[str, Tensor]:
    return {
        "hidden_states": torch.randn(3, 7, WIDTH, generator=draw),
        "encoder_hidden_states": torch.randn(3, 5, WORDS, generator=draw),
    }


def of_two_streams(draw: torch.Generator) -> dict[str, Tensor]:
    shapes = {"hidden_states": (3, 7, WIDTH), "encoder_hidden_states": (3, 5, WIDTH), "temb": (3, WIDTH)}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def of_unet(draw: torch.Generator) -> dict[str, Tensor]:
    return {
        "sample": torch.randn(2, 4, 8, 8, generator=draw),
        "timestep": torch.randint(1, 900, (2,), generator=draw),
        "encoder_hidden_states": torch.randn(2, 5, WORDS, generator=draw),
    }


SAMPLES: tuple[Sample, ...] = (
    Sample("diffusers: transformer block", block, of_block),
    Sample("diffusers: FLUX block", two_streams, of_two_streams),
    Sample("diffusers: UNet", unet, of_unet),
)
