"""SigLIP: CLIP's towers without a norm before the stream; a vision head pools by attention (Zhai et al., 2023).

The pooling head's one query, its probe, is learned; the head projects it together with the stream by one fused matrix,
so that the probe has the stream's basis.
"""

from typing import Any

from fusionlab.symmetry.architectures import architecture, class_head
from fusionlab.symmetry.architectures.clip import feed_forward, text_stream, tower_layers
from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation

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
        if config.num_labels == 0:
            raise SymmetryError(f"{class_name} without labels returns its residual stream; expected num_labels > 0")
        b.linear("classifier", reads=normed, writes=None)


def _text_tower(b: BlueprintBuilder, config: Any, head: str) -> None:
    prefix = "" if head == "text" else "text_model."
    outputs = "text_model_output." if head == "both" else ""
    residual = text_stream(b, config, outputs, is_output=head == "text")
    for table in ("token_embedding", "position_embedding"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    tower_layers(b, config, f"{prefix}encoder.layers", "text.layers", f"{outputs}attentions", residual)
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
    tower_layers(b, config, f"{prefix}encoder.layers", "vision.layers", f"{outputs}attentions", residual)
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
    feed_forward(b, config, f"{at}.layernorm", f"{at}.mlp", "vision.head.ffn", None, None)
