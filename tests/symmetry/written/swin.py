"""Swin in transformers: a pyramid of pre-norm stages with windowed attention (Liu et al., "Swin transformer", 2021).

Every stage has a residual stream of its own. Between two of them four neighbouring tokens are laid side by side, normed
together and projected, so that this norm and projection read four copies of one stream's basis. Each layer adds learned
numbers for every head to its scores (relative positions), which move with the heads.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Concat
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.written.registry import architecture, class_head
from tests.symmetry.written.vit import (
    attention,
    feed_forward,
    layer_heads,
    patch_projection,
    pixel_decoder,
    refuse_no_labels,
    takes_image,
    takes_mask,
)

HEADS = {"Model": "none", "ForImageClassification": "classifier", "ForMaskedImageModeling": "pixels"}


@architecture("swin")
def swin(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe transformers' Swin."""
    head = class_head(class_name, "Swin", HEADS)
    prefix = "" if head == "none" else "swin."
    refuse_no_labels(config, class_name, head)
    takes_image(b, config)
    stages = len(config.depths)
    if head == "pixels":
        takes_mask(b, config, config.encoder_stride / 2 ** (stages - 1))
    residuals = [_stream(b, config, stage, is_output=head == "none") for stage in range(stages)]
    _gives_hidden_states(b, residuals)

    stem = f"{prefix}embeddings"
    patch_projection(b, f"{stem}.patch_embeddings.projection", residuals[0])
    b.norm(f"{stem}.norm", residuals[0])
    tokens = ["position_embeddings"] if config.use_absolute_embeddings else []
    tokens += ["mask_token"] if head == "pixels" else []
    for token in tokens:
        b.parameter(f"{stem}.{token}", None, None, residuals[0])

    layer = 0
    for stage, residual in enumerate(residuals):
        width = config.embed_dim * 2**stage
        for block in range(config.depths[stage]):
            at = f"{prefix}encoder.layers.{stage}.blocks.{block}"
            heads = layer_heads(b, layer, config.num_heads[stage])
            # The maps of a stage are those of its last layer.
            b.attention_maps(f"attentions.{stage}", heads)
            b.parameter(f"{at}.attention.relative_position_bias.relative_position_bias_table", None, heads)
            # Images that windows do not divide are padded with zeros behind this norm.
            normed = b.norm(f"{at}.layernorm_before", residual, padded=True)
            inside, bias = width // config.num_heads[stage], config.qkv_bias
            attention(b, f"{at}.attention", layer, heads, inside, normed, residual, bias, key_bias=bias)
            normed = b.norm(f"{at}.layernorm_after", residual)
            units = int(config.mlp_ratio * width)
            feed_forward(b, f"{at}.mlp", layer, units, config.hidden_act, normed, residual)
            layer += 1
        if stage + 1 < stages:
            at = f"{prefix}encoder.layers.{stage}.downsample"
            four = None if residual is None else Concat(*[residual] * 4)
            b.linear(f"{at}.reduction", reads=b.norm(f"{at}.norm", four), writes=residuals[stage + 1], bias=False)

    normed = b.norm(f"{prefix}layernorm", residuals[-1])
    if head == "pixels":
        pixel_decoder(b, normed)
    if head == "classifier":
        b.linear("classifier", reads=normed, writes=None)


def _stream(b: BlueprintBuilder, config: Any, stage: int, is_output: bool) -> Along | None:
    """One stage's residual stream, None where the model returns it."""
    name, size, last = f"stages.{stage}.residual", config.embed_dim * 2**stage, stage == len(config.depths) - 1
    if last and is_output:
        b.leaves_out(f"{name}: it is this model's output, so its basis is not free")
        return None
    if stage == 0:
        b.leaves_out(f"rotations of {name}: what a norm with a gain returns is this stream")
        return b.space(name, Permutation(size), role="residual")
    # The norm between two stages subtracts the mean over four tokens, not each token's own.
    return b.stream(name, size, norm="layer", centred=last)


def _gives_hidden_states(b: BlueprintBuilder, residuals: list[Along | None]) -> None:
    """The hidden states: what enters each stage, and what leaves the last one."""
    for position, residual in enumerate([*residuals, residuals[-1]]):
        b.gives(f"hidden_states.{position}", None, None, residual)
        b.gives(f"reshaped_hidden_states.{position}", None, residual, None, None)
