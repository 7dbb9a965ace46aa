"""ViT and DeiT in transformers: pre-norm encoders of image patches; and the parts their relatives share with them.

Dosovitskiy et al., "An image is worth 16x16 words" (2021); Touvron et al., "Training data-efficient image transformers
and distillation through attention" (2021).
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.registry import architecture, class_head

# Of query, key, value and output.
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
HEADS = {"Model": "none", "ForImageClassification": "classifier", "ForMaskedImageModeling": "pixels"}
FAMILIES = {"vit": ("ViT", HEADS), "deit": ("DeiT", HEADS | {"ForImageClassificationWithTeacher": "teacher"})}


@architecture(*FAMILIES)
def vit(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe transformers' ViT or DeiT."""
    head = class_head(class_name, *FAMILIES[config.model_type])
    prefix = "" if head == "none" else f"{config.model_type}."
    refuse_no_labels(config, class_name, head)
    takes_image(b, config)
    if head == "pixels":
        takes_mask(b, config, config.encoder_stride)
    residual = pre_norm_stream(b, config.hidden_size, is_output=head == "none")

    tokens = ["cls_token", "position_embeddings"]
    tokens += ["distillation_token"] if config.model_type == "deit" else []
    tokens += ["mask_token"] if head == "pixels" else []
    for token in tokens:
        b.parameter(f"{prefix}embeddings.{token}", None, None, residual)
    patch_projection(b, f"{prefix}embeddings.patch_embeddings.projection", residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}layers.{layer}"
        heads = layer_heads(b, layer, config.num_attention_heads)
        b.attention_maps(f"attentions.{layer}", heads)
        normed = b.norm(f"{at}.layernorm_before", residual)
        bias = config.qkv_bias
        attention(b, f"{at}.attention", layer, heads, head_width(config), normed, residual, bias, key_bias=bias)
        normed = b.norm(f"{at}.layernorm_after", residual)
        feed_forward(b, f"{at}.mlp", layer, config.intermediate_size, config.hidden_act, normed, residual)

    normed = b.norm(f"{prefix}layernorm", residual)
    if head == "pixels":
        pixel_decoder(b, normed)
    names = {"none": ["pooler.dense"], "classifier": ["classifier"]}
    names["teacher"] = ["cls_classifier", "distillation_classifier"]
    for name in names.get(head, []):
        b.linear(name, reads=normed, writes=None)


def pair(size: Any) -> tuple[int, int]:
    """Height and width from one number or two."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def takes_image(b: BlueprintBuilder, config: Any) -> None:
    """The input image."""
    b.takes("pixel_values", (config.num_channels, *pair(config.image_size)))


def takes_mask(b: BlueprintBuilder, config: Any, decoded: float | None = None) -> None:
    """The input that hides patches.

    Args:
        decoded: pixels on the side of what a decoder makes of each patch; where this is not the patch itself, the model
            has no loss and takes no mask.
    """
    if decoded is None or (decoded == config.patch_size and isinstance(config.image_size, int)):
        (height, width), (patch_height, patch_width) = pair(config.image_size), pair(config.patch_size)
        b.takes("bool_masked_pos", (height // patch_height * (width // patch_width),), vocabulary=2)


def refuse_no_labels(config: Any, class_name: str, head: str) -> None:
    """Refuse a classifier without labels, which returns its residual stream."""
    if head in ("classifier", "teacher") and not config.num_labels:
        raise SymmetryError(f"{class_name} without labels is not described; expected num_labels > 0")


def pre_norm_stream(b: BlueprintBuilder, size: int, is_output: bool) -> Along | None:
    """The residual stream of a pre-norm encoder, None where the model returns it."""
    if is_output:
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
        return None
    residual = b.stream("residual", size, norm="layer")
    b.gives("hidden_states", None, None, residual)
    return residual


def patch_projection(b: BlueprintBuilder, name: str, writes: Axis | None, bias: bool = True) -> None:
    """The convolution that turns patches into tokens."""
    b.parameter(f"{name}.weight", writes, None, None, None)
    if bias:
        b.parameter(f"{name}.bias", writes)


def pixel_decoder(b: BlueprintBuilder, reads: Normed) -> None:
    """The convolution with kernels of size one that turns tokens into pixels."""
    b.reads("decoder.0.weight", 1, "decoder.0.bias", reads)
    b.parameter("decoder.0.weight", None, reads.axis and reads.axis.dual(), None, None)
    b.parameter("decoder.0.bias", None)


def head_width(config: Any) -> int:
    """Features of one attention head."""
    return getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)


def layer_heads(b: BlueprintBuilder, layer: int, count: int) -> Along:
    """The attention heads of one layer."""
    return b.space(f"layers.{layer}.heads", Permutation(count), role="heads", layer=layer)


def inside_heads(b: BlueprintBuilder, layer: int, heads: Along, width: int) -> tuple[Along, Along]:
    """The spaces inside the heads of one layer: that of queries and keys, and that of values."""
    qk = b.space(f"layers.{layer}.qk", Invertible(width), role="attention.qk", layer=layer, index=(heads.space,))
    vo = b.space(f"layers.{layer}.vo", Invertible(width), role="attention.vo", layer=layer, index=(heads.space,))
    return qk, vo


def attention(
    b: BlueprintBuilder,
    at: str,
    layer: int,
    heads: Along,
    width: int,
    reads: Normed,
    writes: Axis | None,
    bias: bool,
    key_bias: bool,
    names: tuple[str, str, str, str] = PROJECTIONS,
) -> None:
    """Self-attention, by default with the parameter names that transformers' vision transformers share."""
    query, key, value, output = names
    qk, vo = inside_heads(b, layer, heads, width)
    b.linear(f"{at}.{query}", reads=reads, writes=b.per(heads, qk), bias=bias)
    b.linear(f"{at}.{key}", reads=reads, writes=b.per(heads, qk.dual()), bias=key_bias)
    b.linear(f"{at}.{value}", reads=reads, writes=b.per(heads, vo), bias=bias)
    b.linear(f"{at}.{output}", reads=b.per(heads, vo), writes=writes)


def feed_forward(
    b: BlueprintBuilder, at: str, layer: int, size: int, activation: str, reads: Normed, writes: Axis | None
) -> None:
    """A feed-forward layer with the parameter names that transformers' vision transformers share."""
    ffn = b.hidden_units(f"layers.{layer}.ffn", size, layer, activation)
    b.linear(f"{at}.fc1", reads=reads, writes=ffn)
    b.linear(f"{at}.fc2", reads=ffn, writes=writes)
