"""Whisper: a pre-norm encoder behind two convolutions, and a pre-norm decoder (Radford et al., 2022).

Encoder and decoder have streams of their own, which cross-attention couples. Keys have no bias.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.written.bart import attention
from tests.symmetry.written.registry import architecture, class_head

HEADS = {"Model": "none", "ForConditionalGeneration": "lm", "ForAudioClassification": "audio"}


@architecture("whisper")
def whisper(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a Whisper model."""
    head = class_head(class_name, "Whisper", HEADS)
    prefix = "model." if head == "lm" else ""
    b.takes("input_features", (config.num_mel_bins, 2 * config.max_source_positions))
    encoder: Along | None = None
    decoder: Along | None = None
    if head == "none":
        b.leaves_out("residual streams: they are this model's outputs, so their bases are not free")
    else:
        encoder = b.space("encoder.residual", Permutation(config.d_model), role="residual")
        b.leaves_out("rotations of encoder.residual: the last convolution writes to it through GELU")
    if head == "audio":
        b.gives("hidden_states", None, None, encoder)
        encoded = _encoder(b, config, "", encoder, "attentions")
        if config.use_weighted_layer_sum:
            b.parameter("layer_weights", None)
        b.linear("projector", reads=encoded, writes=None)
        b.linear("classifier", reads=None, writes=None)
        return

    length = min(12, config.max_target_positions)
    b.takes("decoder_input_ids", (length,), vocabulary=config.vocab_size)
    if head == "lm":
        decoder = b.stream("decoder.residual", config.d_model, norm="layer", tied=config.tie_word_embeddings)
        b.gives("encoder_hidden_states", None, None, encoder)
        b.gives("encoder_last_hidden_state", None, None, encoder)
        b.gives("decoder_hidden_states", None, None, decoder)
    encoded = _encoder(b, config, prefix, encoder, "encoder_attentions")
    decoded = _decoder(b, config, prefix, decoder, encoded)
    if head == "lm":
        b.linear("proj_out", reads=decoded, writes=None, bias=False)


def _encoder(b: BlueprintBuilder, config: Any, prefix: str, residual: Axis | None, maps: str) -> Normed:
    """Describe the convolutions and the encoder's layers; return what the encoder gives."""
    units = b.hidden_units("encoder.conv", config.d_model, layer=None, activation="gelu")
    b.parameter(f"{prefix}encoder.conv1.weight", units, None, None)
    b.parameter(f"{prefix}encoder.conv1.bias", units)
    b.reads(f"{prefix}encoder.conv2.weight", 1, f"{prefix}encoder.conv2.bias", units)
    b.parameter(f"{prefix}encoder.conv2.weight", residual, units.dual(), None)
    b.parameter(f"{prefix}encoder.conv2.bias", residual)
    b.embedding(f"{prefix}encoder.embed_positions", writes=residual)
    for layer in range(config.encoder_layers):
        at, name = f"{prefix}encoder.layers.{layer}", f"encoder.layers.{layer}"
        normed = b.norm(f"{at}.self_attn_layer_norm", residual)
        b.attention_maps(
            f"{maps}.{layer}",
            _attention(b, config, f"{at}.self_attn", name, layer, config.encoder_attention_heads, normed, normed),
        )
        _feed_forward(b, config, at, name, layer, config.encoder_ffn_dim, residual)
    return b.norm(f"{prefix}encoder.layer_norm", residual)


def _decoder(b: BlueprintBuilder, config: Any, prefix: str, residual: Axis | None, encoded: Normed) -> Normed:
    """Describe the decoder's embeddings and layers; return what the decoder gives."""
    head_count = config.decoder_attention_heads
    b.embedding(f"{prefix}decoder.embed_tokens", writes=residual)
    b.embedding(f"{prefix}decoder.embed_positions", writes=residual)
    for layer in range(config.decoder_layers):
        at, name, cross = f"{prefix}decoder.layers.{layer}", f"decoder.layers.{layer}", f"cross.layers.{layer}"
        normed = b.norm(f"{at}.self_attn_layer_norm", residual)
        heads = _attention(b, config, f"{at}.self_attn", name, layer, head_count, normed, normed)
        b.attention_maps(f"decoder_attentions.{layer}", heads)
        normed = b.norm(f"{at}.encoder_attn_layer_norm", residual)
        heads = _attention(b, config, f"{at}.encoder_attn", cross, layer, head_count, normed, encoded)
        b.attention_maps(f"cross_attentions.{layer}", heads)
        _feed_forward(b, config, at, name, layer, config.decoder_ffn_dim, residual)
    return b.norm(f"{prefix}decoder.layer_norm", residual)


def _attention(
    b: BlueprintBuilder,
    config: Any,
    at: str,
    name: str,
    layer: int,
    head_count: int,
    queries: Normed,
    memory: Normed,
) -> Along:
    return attention(b, at, name, layer, head_count, config.d_model, queries, memory, key_bias=False)


def _feed_forward(
    b: BlueprintBuilder, config: Any, at: str, name: str, layer: int, size: int, residual: Axis | None
) -> None:
    units = b.hidden_units(f"{name}.ffn", size, layer, config.activation_function)
    normed = b.norm(f"{at}.final_layer_norm", residual)
    b.linear(f"{at}.fc1", reads=normed, writes=units)
    b.linear(f"{at}.fc2", reads=units, writes=residual)
