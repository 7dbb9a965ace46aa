"""DINOv2 in transformers, with and without register tokens: a pre-norm encoder with layer scale.

Oquab et al., "DINOv2" (2024); Darcet et al., "Vision transformers need registers" (2024).
"""

from typing import Any

from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Permutation, Scale
from tests.symmetry.written.registry import architecture, class_head, is_before
from tests.symmetry.written.vit import (
    PROJECTIONS,
    attention,
    feed_forward,
    head_width,
    layer_heads,
    patch_projection,
    pre_norm_stream,
    refuse_no_labels,
    takes_image,
)

HEADS = {"Model": "none", "ForImageClassification": "classifier"}
# Of query, key, value and output before transformers 5.18.
OLDER_PROJECTIONS = ("attention.query", "attention.key", "attention.value", "output.dense")
FAMILIES = {"dinov2": "Dinov2", "dinov2_with_registers": "Dinov2WithRegisters"}


@architecture(*FAMILIES)
def dinov2(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe transformers' DINOv2."""
    head = class_head(class_name, FAMILIES[config.model_type], HEADS)
    prefix = "" if head == "none" else f"{config.model_type}."
    refuse_no_labels(config, class_name, head)
    takes_image(b, config)
    residual = pre_norm_stream(b, config.hidden_size, is_output=head == "none")

    for token in ("cls_token", "position_embeddings"):
        b.parameter(f"{prefix}embeddings.{token}", None, None, residual)
    if config.model_type == "dinov2_with_registers":
        b.parameter(f"{prefix}embeddings.register_tokens", None, None, residual)
    if getattr(config, "use_mask_token", True):
        b.parameter(f"{prefix}embeddings.mask_token", None, residual)
    patch_projection(b, f"{prefix}embeddings.patch_embeddings.projection", residual)

    older = is_before("transformers", "5.18")
    names = OLDER_PROJECTIONS if older else PROJECTIONS
    for layer in range(config.num_hidden_layers):
        at = f"{prefix}encoder.layer.{layer}"
        heads = layer_heads(b, layer, config.num_attention_heads)
        b.attention_maps(f"attentions.{layer}", heads)
        normed = b.norm(f"{at}.norm1", residual)
        bias = config.qkv_bias
        attention(b, f"{at}.attention", layer, heads, head_width(config), normed, residual, bias, bias, names)
        b.layer_scale(f"{at}.layer_scale1.lambda1", residual, f"{at}.attention.{names[-1]}")
        normed = b.norm(f"{at}.norm2", residual)
        units = int(config.hidden_size * config.mlp_ratio)
        if config.use_swiglu_ffn:
            # Two thirds of the plain layer's units, rounded up to a multiple of 8.
            last = _gated(b, f"{at}.mlp", layer, (int(units * 2 / 3) + 7) // 8 * 8, normed, residual, older)
        else:
            last = f"{at}.mlp.fc2"
            feed_forward(b, f"{at}.mlp", layer, units, config.hidden_act, normed, residual)
        b.layer_scale(f"{at}.layer_scale2.lambda1", residual, last)

    normed = b.norm(f"{prefix}layernorm", residual)
    if head == "classifier":
        # The class token beside the mean of the patches.
        b.linear("classifier", reads=b.copies(normed, 2), writes=None)


def _gated(b: BlueprintBuilder, at: str, layer: int, size: int, reads: Normed, writes: Axis | None, older: bool) -> str:
    """A feed-forward layer whose units are multiplied by gates; one factor for each unit between up and down.

    Returns the name of its last map. Older releases have gates and units in one map.
    """
    ffn = b.space(f"layers.{layer}.ffn", Permutation(size), role="ffn", layer=layer)
    scale = b.space(
        f"layers.{layer}.ffn.scale", Scale(1, signed=True), role="ffn.scale", layer=layer, index=(ffn.space,)
    )
    last = f"{at}.weights_out" if older else f"{at}.down_proj"
    if older:
        b.linear(f"{at}.weights_in", reads=reads, writes=Concat(ffn, b.per(ffn, scale)))
    else:
        b.linear(f"{at}.gate_proj", reads=reads, writes=ffn)
        b.linear(f"{at}.up_proj", reads=reads, writes=b.per(ffn, scale))
    b.linear(last, reads=b.per(ffn, scale), writes=writes)
    return last
