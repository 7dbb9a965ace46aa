"""BEiT in transformers: a pre-norm encoder with layer scale and relative positions (Bao et al., "BEiT", 2022).

Relative positions add a learned number for each head to the scores, so nothing inside a head changes; a table that all
layers share makes them share one permutation of heads.
"""

from typing import Any

from fusionlab.symmetry.axes import Along
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.written.registry import architecture, class_head
from tests.symmetry.written.vit import (
    attention,
    feed_forward,
    head_width,
    layer_heads,
    patch_projection,
    pre_norm_stream,
    refuse_no_labels,
    takes_image,
    takes_mask,
)

HEADS = {"Model": "none", "ForImageClassification": "classifier", "ForMaskedImageModeling": "tokens"}


@architecture("beit")
def beit(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe transformers' BEiT."""
    head = class_head(class_name, "Beit", HEADS)
    prefix = "" if head == "none" else "beit."
    refuse_no_labels(config, class_name, head)
    takes_image(b, config)
    if head == "tokens" and config.use_mask_token:
        takes_mask(b, config)
    residual = _stream(b, config, head)

    tokens = ["cls_token"]
    tokens += ["mask_token"] if config.use_mask_token else []
    tokens += ["position_embeddings"] if config.use_absolute_position_embeddings else []
    for token in tokens:
        b.parameter(f"{prefix}embeddings.{token}", None, None, residual)
    patch_projection(b, f"{prefix}embeddings.patch_embeddings.projection", residual)

    count = config.num_attention_heads
    shared: Along | None = None
    if config.use_shared_relative_position_bias:
        shared = b.space("heads", Permutation(count), role="heads")
        b.parameter(f"{prefix}shared_position_bias.relative_position_bias_table", None, shared)
    for layer in range(config.num_hidden_layers):
        at = f"{prefix}layers.{layer}"
        heads = shared or layer_heads(b, layer, count)
        b.attention_maps(f"attentions.{layer}", heads)
        if config.use_relative_position_bias:
            b.parameter(f"{at}.relative_position_bias.relative_position_bias_table", None, heads)
        normed = b.norm(f"{at}.layernorm_before", residual)
        attention(b, f"{at}.attention", layer, heads, head_width(config), normed, residual, bias=True, key_bias=False)
        normed = b.norm(f"{at}.layernorm_after", residual)
        feed_forward(b, f"{at}.mlp", layer, config.intermediate_size, config.hidden_act, normed, residual)
        if config.layer_scale_init_value > 0:
            b.layer_scale(f"{at}.lambda_1", residual, f"{at}.attention.o_proj")
            b.layer_scale(f"{at}.lambda_2", residual, f"{at}.mlp.fc2")

    if not config.use_mean_pooling:
        normed = b.norm(f"{prefix}layernorm", residual)
    elif head != "tokens":
        normed = b.norm(f"{prefix}pooler.layernorm", residual)
    if head == "classifier":
        b.linear("classifier", reads=normed, writes=None)
    if head == "tokens":
        b.linear("lm_head", reads=b.norm("layernorm", residual), writes=None)


def _stream(b: BlueprintBuilder, config: Any, head: str) -> Along | None:
    """The residual stream: pre-norm, unless two norms follow one another at its end."""
    if head != "tokens" or config.use_mean_pooling:
        return pre_norm_stream(b, config.hidden_size, is_output=head == "none")
    residual = b.space("residual", Permutation(config.hidden_size), role="residual")
    b.leaves_out("rotations of the residual stream: its last norm is read by another norm")
    b.gives("hidden_states", None, None, residual)
    return residual
