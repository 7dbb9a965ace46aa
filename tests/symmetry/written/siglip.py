"""SigLIP: CLIP's towers without a norm before the stream; a vision head pools by attention (Zhai et al., 2023).

The pooling head's one query, its probe, is learned; the head projects it together with the stream by one fused matrix,
so that the probe has the stream's basis. The gain of the norm before it goes into those rows that read the stream.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis, Concat
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.registry import architecture, class_head

HEADS = {"Model": "both", "TextModel": "text", "VisionModel": "vision", "ForImageClassification": "classifier"}


@architecture("siglip", "siglip_text_model", "siglip_vision_model")
def siglip(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a SigLIP model or one of its towers."""
    head = class_head(class_name, "Siglip", HEADS)
    if head == "both":
        if not _pools(config.vision_config):
            raise SymmetryError(f"{class_name} without a vision head embeds no image; expected vision_use_head true")
        b.leaves_out("basis of the common embedding space: image_embeds and text_embeds are this model's outputs")
        b.parameter("logit_scale", None)
        b.parameter("logit_bias", None)
    if head in ("both", "text"):
        _text_tower(b, getattr(config, "text_config", config), head)
    if head in ("both", "vision", "classifier"):
        normed = _vision_tower(b, getattr(config, "vision_config", config), head)
    if head == "classifier":
        b.linear("classifier", reads=normed, writes=None)


def _text_tower(b: BlueprintBuilder, config: Any, head: str) -> None:
    prefix = "" if head == "text" else "text_model."
    outputs = "text_model_output." if head == "both" else ""
    length = min(12, config.max_position_embeddings)
    b.takes("input_ids", (length,), vocabulary=config.vocab_size)
    residual: Axis | None = None
    if head == "text":
        b.leaves_out("text.residual: the stream is this model's output, so its basis is not free")
    else:
        residual = b.stream("text.residual", config.hidden_size, norm="layer")
        b.gives(f"{outputs}hidden_states", None, None, residual)
        b.gives(f"{outputs}last_hidden_state", None, None, residual)
    for table in ("token_embedding", "position_embedding"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    _layers(b, config, f"{prefix}encoder.layers", "text.layers", f"{outputs}attentions", residual)
    normed = b.norm(f"{prefix}final_layer_norm", residual)
    b.linear(f"{prefix}head", reads=normed, writes=None)


def _vision_tower(b: BlueprintBuilder, config: Any, head: str) -> Normed:
    """Describe the vision tower; return what its last norm gives."""
    prefix = "" if head == "vision" else "vision_model."
    outputs = "vision_model_output." if head == "both" else ""
    b.takes("pixel_values", (config.num_channels, config.image_size, config.image_size))
    residual: Axis | None = None
    if head == "vision":
        b.leaves_out("vision.residual: the stream is this model's output, so its basis is not free")
    else:
        # The probe is read as it is, its mean included.
        centred = not _pools(config)
        residual = b.stream("vision.residual", config.hidden_size, norm="layer", centred=centred)
        b.gives(f"{outputs}hidden_states", None, None, residual)
        b.gives(f"{outputs}last_hidden_state", None, None, residual)
    b.parameter(f"{prefix}embeddings.patch_embedding.weight", residual, None, None, None)
    b.parameter(f"{prefix}embeddings.patch_embedding.bias", residual)
    b.embedding(f"{prefix}embeddings.position_embedding", writes=residual)
    _layers(b, config, f"{prefix}encoder.layers", "vision.layers", f"{outputs}attentions", residual)
    normed = b.norm(f"{prefix}post_layernorm", residual)
    if _pools(config):
        _pooling_head(b, config, f"{prefix}head", normed)
    return normed


def _pools(config: Any) -> bool:
    """The vision tower has a pooling head; configs before transformers 5.23 say so only where it has none."""
    return getattr(config, "vision_use_head", True)


def _pooling_head(b: BlueprintBuilder, config: Any, at: str, normed: Normed) -> None:
    """Describe the attention from the probe to the stream, and the feed-forward layer behind it."""
    width, residual = config.hidden_size, normed.axis
    heads = b.space("vision.head.heads", Permutation(config.num_attention_heads), role="heads")
    inside = Invertible(width // config.num_attention_heads)
    qk = b.space("vision.head.qk", inside, role="attention.qk", index=(heads.space,))
    vo = b.space("vision.head.vo", inside, role="attention.vo", index=(heads.space,))
    fused = Concat(b.per(heads, qk), b.per(heads, qk.dual()), b.per(heads, vo))
    projection = f"{at}.attention.in_proj"
    b.parameter(f"{at}.probe", None, None, residual)
    b.parameter(f"{projection}_weight", fused, residual and residual.dual())
    b.parameter(f"{projection}_bias", fused)
    # Keys and values read the norm; queries, the first rows, read the probe.
    b.reads(f"{projection}_weight", 1, f"{projection}_bias", normed, rows=(width, 3 * width))
    b.linear(f"{at}.attention.out_proj", reads=b.per(heads, vo), writes=None)
    _feed_forward(b, config, f"{at}.layernorm", f"{at}.mlp", "vision.head.ffn", None, None)


def _layers(b: BlueprintBuilder, config: Any, at: str, name: str, maps: str, residual: Axis | None) -> None:
    """Describe the layers of a tower.

    Args:
        config: the tower's.
        at: what the layers' parameter names begin with.
        name: what their spaces' names begin with.
        maps: the output that holds their attention maps.
        residual: their stream.
    """
    for layer in range(config.num_hidden_layers):
        here, space = f"{at}.{layer}", f"{name}.{layer}"
        normed = b.norm(f"{here}.layer_norm1", residual)
        heads = _attention(b, config, f"{here}.self_attn", space, layer, normed)
        b.attention_maps(f"{maps}.{layer}", heads)
        _feed_forward(b, config, f"{here}.layer_norm2", f"{here}.mlp", f"{space}.ffn", layer, residual)


def _attention(b: BlueprintBuilder, config: Any, at: str, name: str, layer: int, reads: Normed) -> Along:
    """Describe the self-attention of one layer; return the axis of its heads."""
    heads = b.space(f"{name}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
    inside = Invertible(config.hidden_size // config.num_attention_heads)
    qk = b.space(f"{name}.qk", inside, role="attention.qk", layer=layer, index=(heads.space,))
    vo = b.space(f"{name}.vo", inside, role="attention.vo", layer=layer, index=(heads.space,))
    b.linear(f"{at}.q_proj", reads=reads, writes=b.per(heads, qk))
    b.linear(f"{at}.k_proj", reads=reads, writes=b.per(heads, qk.dual()))
    b.linear(f"{at}.v_proj", reads=reads, writes=b.per(heads, vo))
    b.linear(f"{at}.out_proj", reads=b.per(heads, vo), writes=reads.axis)
    return heads


def _feed_forward(
    b: BlueprintBuilder, config: Any, norm: str, at: str, name: str, layer: int | None, residual: Axis | None
) -> None:
    """Describe a norm and the feed-forward layer behind it."""
    units = b.hidden_units(name, config.intermediate_size, layer, config.hidden_act)
    normed = b.norm(norm, residual)
    b.linear(f"{at}.fc1", reads=normed, writes=units)
    b.linear(f"{at}.fc2", reads=units, writes=residual)
