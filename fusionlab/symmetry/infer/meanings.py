"""Meanings of a config's integer fields, guessed from their names."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache


class Meaning(StrEnum):
    """The thing that a field counts.

    `KEPT` is everything that is no size of the model, or too small to be worth a change.
    """

    TOKEN = "token"
    LAYERS = "layers"
    KEY_VALUE_HEADS = "key-value heads"
    HEADS = "heads"
    ROTARY = "rotary coordinates"
    HEAD_WIDTH = "coordinates of a head"
    RANK = "rank"
    INNER = "inner width"
    WIDTH = "width"
    VOCABULARY = "vocabulary"
    POSITIONS = "positions"
    EXPERTS = "experts"
    CHOSEN = "chosen experts"
    GROUPS = "groups of experts"
    CHOSEN_GROUPS = "chosen groups"
    CHANNEL_GROUPS = "groups of channels"
    WINDOW = "window"
    IMAGE = "image side"
    PATCH = "patch side"
    STRIDE = "side of what a patch is decoded to"
    KEPT = "kept"


# The first that fits counts.
_PATTERNS: tuple[tuple[str, Meaning], ...] = (
    (r"_token_(id|index)s?$|^(pad|bos|eos|unk|mask)_index$", Meaning.TOKEN),
    (r"_kernel|stride|dilation|ratio|factor|coeff|_cost$|loss|sampling|codebook|codevector|feat_extract", Meaning.KEPT),
    (r"mask_(time|feature)|num_channels|in_channels|audio_channels|type_vocab|chunk_size_feed", Meaning.KEPT),
    (r"shared(?!.*intermediate)", Meaning.KEPT),
    (
        r"feature_layer|_layer_id$|image_seq_length|num_queries|merge_size|temporal|mtp|nextn|adapter|networks$",
        Meaning.KEPT,
    ),
    (r"(only|rope|proj|shared|adapter|conv|window|dense|encoder_proj|mtp|residual)_layers$", Meaning.KEPT),
    (r"(key_value|kv)_heads$|_head_kv$|_query_group(s|_num)$|^num_query_groups$", Meaning.KEY_VALUE_HEADS),
    (r"(^|_)heads$|(^|_)n_head$|^num_head$", Meaning.HEADS),
    (r"(^|_)(num_hidden_layers|n_layers?|num_layers(_per_stack)?|layers|depths?)$", Meaning.LAYERS),
    (r"^rotary_dim$", Meaning.ROTARY),
    (r"head_dim$|^attention_head_size$|^d_kv$|^kv_channels$|^d_head$|^dim_head$", Meaning.HEAD_WIDTH),
    (r"_rank$", Meaning.RANK),
    (r"intermediate|ffn|^d_?ff$|^dim_ff$|n_inner$|mlp_dim|feed_?forward|^d_inner$|mel_bins$", Meaning.INNER),
    (r"expert_dim$|linear_units$", Meaning.INNER),
    (r"vocab_size", Meaning.VOCABULARY),
    (r"position_embeddings$|_positions$|^n_ctx$|^context_length$|^max_seq_len$", Meaning.POSITIONS),
    (r"^(moe_)?(num|n)_(local_|routed_)?experts$", Meaning.EXPERTS),
    (r"experts_per_tok(en)?$|^moe_(topk|k|top_k)$|^top_k$", Meaning.CHOSEN),
    (r"^(n_group|num_expert_groups?)$", Meaning.GROUPS),
    (r"^topk_group$", Meaning.CHOSEN_GROUPS),
    (r"_embedding_groups$", Meaning.CHANNEL_GROUPS),
    (r"(sliding|attention)_window(_size)?$|^window_size$|^local_attention$|^attention_chunk_size$", Meaning.WINDOW),
    (r"^image_size$", Meaning.IMAGE),
    (r"^patch_size$", Meaning.PATCH),
    (r"^encoder_stride$", Meaning.STRIDE),
    (r"hidden_sizes?$|^d_model$|^n_embd$|embed_dims?$|embedding_(size|dim)$|embed_proj_dim$|^dim$", Meaning.WIDTH),
    (
        r"proj(ection)?_(dim|size)$|^output_dim$|hidden_dim$|emb_dim$|output_size$|bottleneck_size$|^conv_dim$|out_hidden",
        Meaning.WIDTH,
    ),
)
# These would be swallowed by what is kept.
_EXCEPTIONS = {
    "encoder_stride": Meaning.STRIDE,
    "max_position_embeddings": Meaning.POSITIONS,
    "num_conv_pos_embedding_groups": Meaning.CHANNEL_GROUPS,
}


@cache
def meaning(name: str) -> Meaning:
    """The meaning of a config's field, by its name: the same few hundred names are asked for again and again."""
    if name in _EXCEPTIONS:
        return _EXCEPTIONS[name]
    return next((found for pattern, found in _PATTERNS if re.search(pattern, name)), Meaning.KEPT)
