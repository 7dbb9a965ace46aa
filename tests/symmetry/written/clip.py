"""CLIP: a pre-norm vision transformer and a pre-norm text transformer (Radford et al., 2021).

The vision tower's stream is the output of a LayerNorm, whose gain no rotation passes; the text tower's is not.
"""

from typing import Any

from fusionlab.symmetry.axes import Axis
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.written.bart import attention
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "both",
    "TextModel": "text",
    "TextModelWithProjection": "text-projection",
    "VisionModel": "vision",
    "VisionModelWithProjection": "vision-projection",
    "ForImageClassification": "classifier",
}


@architecture("clip", "clip_text_model", "clip_vision_model")
def clip(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a CLIP model or one of its towers."""
    head = class_head(class_name, "CLIP", HEADS)
    if head == "both":
        b.leaves_out("rotations of the common embedding space: image_embeds and text_embeds are this model's outputs")
        b.parameter("logit_scale")
    if head in ("both", "text", "text-projection"):
        pooled = _text_tower(b, getattr(config, "text_config", config), head)
        if head != "text":
            b.linear("text_projection", reads=pooled, writes=None, bias=False)
    if head in ("both", "vision", "vision-projection", "classifier"):
        residual, pooled = _vision_tower(b, getattr(config, "vision_config", config), head)
        if head in ("both", "vision-projection"):
            b.linear("visual_projection", reads=pooled, writes=None, bias=False)
    if head == "classifier":
        if config.num_labels == 0:
            raise SymmetryError(f"{class_name} without labels returns its residual stream; expected num_labels > 0")
        # Patches are averaged as they are, past the last norm.
        b.linear("classifier", reads=residual, writes=None)


def _text_tower(b: BlueprintBuilder, config: Any, head: str) -> Normed:
    """Describe the text tower; return what its last norm gives."""
    prefix = "" if head == "text" else "text_model."
    outputs = "text_model_output." if head == "both" else ""
    residual = text_stream(b, config, outputs, is_output=head == "text")
    for table in ("token_embedding", "position_embedding"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    tower_layers(b, config, f"{prefix}encoder.layers", "text.layers", f"{outputs}attentions", residual)
    return b.norm(f"{prefix}final_layer_norm", residual)


def _vision_tower(b: BlueprintBuilder, config: Any, head: str) -> tuple[Axis | None, Normed]:
    """Describe the vision tower; return its stream and what its last norm gives."""
    prefix = "" if head == "vision" else "vision_model."
    outputs = "vision_model_output." if head == "both" else ""
    b.takes("pixel_values", (config.num_channels, config.image_size, config.image_size))
    residual: Axis | None = None
    if head == "vision":
        b.leaves_out("vision.residual: the stream is this model's output, so its basis is not free")
    else:
        residual = b.space("vision.residual", Permutation(config.hidden_size), role="residual")
        b.leaves_out("rotations of vision.residual: the stream is the output of a LayerNorm, pre_layrnorm")
        b.gives(f"{outputs}hidden_states", None, None, residual)
        b.gives(f"{outputs}last_hidden_state", None, None, residual)
    b.parameter(f"{prefix}embeddings.class_embedding", residual)
    b.parameter(f"{prefix}embeddings.patch_embedding.weight", residual, None, None, None)
    b.embedding(f"{prefix}embeddings.position_embedding", writes=residual)
    b.norm(f"{prefix}pre_layrnorm", residual)
    tower_layers(b, config, f"{prefix}encoder.layers", "vision.layers", f"{outputs}attentions", residual)
    return residual, b.norm(f"{prefix}post_layernorm", residual)


def text_stream(b: BlueprintBuilder, config: Any, outputs: str, is_output: bool) -> Axis | None:
    """Declare a text tower's input and its stream, which is left out where it is the model's output.

    Args:
        outputs: what the names of the tower's outputs begin with.
        is_output: whether the model returns the stream.
    """
    length = min(12, config.max_position_embeddings)
    b.takes("input_ids", (length,), vocabulary=config.vocab_size)
    if is_output:
        b.leaves_out("text.residual: the stream is this model's output, so its basis is not free")
        return None
    residual = b.stream("text.residual", config.hidden_size, norm="layer")
    b.gives(f"{outputs}hidden_states", None, None, residual)
    b.gives(f"{outputs}last_hidden_state", None, None, residual)
    return residual


def tower_layers(b: BlueprintBuilder, config: Any, at: str, name: str, maps: str, residual: Axis | None) -> None:
    """Describe the layers of a tower of CLIP or SigLIP.

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
        heads = attention(
            b, f"{here}.self_attn", space, layer, config.num_attention_heads, config.hidden_size, normed, normed
        )
        b.attention_maps(f"{maps}.{layer}", heads)
        feed_forward(b, config, f"{here}.layer_norm2", f"{here}.mlp", f"{space}.ffn", layer, residual)


def feed_forward(
    b: BlueprintBuilder, config: Any, norm: str, at: str, name: str, layer: int | None, residual: Axis | None
) -> None:
    """Describe a norm and the feed-forward layer behind it."""
    units = b.hidden_units(name, config.intermediate_size, layer, config.hidden_act)
    normed = b.norm(norm, residual)
    b.linear(f"{at}.fc1", reads=normed, writes=units)
    b.linear(f"{at}.fc2", reads=units, writes=residual)
