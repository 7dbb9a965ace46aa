"""ALBERT: a post-norm encoder whose layers share parameters, with narrow embeddings (Lan et al., 2020).

A layer that runs several times has one set of spaces. The LayerNorm of the embeddings is read by the map into the
encoder alone: its gain can be folded there, and then the embedding space admits rotations.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis
from fusionlab.symmetry.builder import BlueprintBuilder
from tests.symmetry.written.bert import (
    HEADS,
    attention_spaces,
    classification_head,
    post_norm_stream,
    prediction_units,
)
from tests.symmetry.written.registry import architecture, class_head


@architecture("albert")
def albert(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe an ALBERT model."""
    head = class_head(class_name, "Albert", HEADS)
    prefix = "" if head == "none" else "albert."
    tied = head == "masked" and config.tie_word_embeddings

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    embedding = b.stream("embedding", config.embedding_size, norm="layer", tied=tied)
    residual = post_norm_stream(b, config.hidden_size, is_output=head == "none")
    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        b.embedding(f"{prefix}embeddings.{table}", writes=embedding)
    normed = b.norm(f"{prefix}embeddings.LayerNorm", embedding)
    b.linear(f"{prefix}encoder.embedding_hidden_mapping_in", reads=normed, writes=residual)

    groups = [
        [
            _layer(
                b,
                f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{inner}",
                group * config.inner_group_num + inner,
                config,
                residual,
            )
            for inner in range(config.inner_group_num)
        ]
        for group in range(config.num_hidden_groups)
    ]
    layers_in_group = config.num_hidden_layers / config.num_hidden_groups
    runs = [groups[int(run / layers_in_group)] for run in range(config.num_hidden_layers)]
    for position, heads in enumerate(heads for run in runs for heads in run):
        b.attention_maps(f"attentions.{position}", heads)

    if head in ("none", "sequence"):
        b.linear(f"{prefix}pooler", reads=residual, writes=None)
    if head == "masked":
        hidden = prediction_units(b, embedding, config.embedding_size, tied)
        b.linear("predictions.dense", reads=residual, writes=hidden)
        normed = b.norm("predictions.LayerNorm", hidden)
        b.linear("predictions.decoder", reads=normed, writes=None)
        b.parameter("predictions.bias", None)
    elif head == "sequence":
        b.linear("classifier", reads=None, writes=None)
    else:
        classification_head(b, head, residual)


def _layer(b: BlueprintBuilder, at: str, layer: int, config: Any, residual: Axis | None) -> Along:
    """One set of layer parameters; returns its heads."""
    heads, qk, vo = attention_spaces(b, layer, config.num_attention_heads, config.hidden_size)
    ffn = b.hidden_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)
    b.linear(f"{at}.attention.query", reads=residual, writes=b.per(heads, qk))
    b.linear(f"{at}.attention.key", reads=residual, writes=b.per(heads, qk.dual()))
    b.linear(f"{at}.attention.value", reads=residual, writes=b.per(heads, vo))
    b.linear(f"{at}.attention.dense", reads=b.per(heads, vo), writes=residual)
    b.norm(f"{at}.attention.LayerNorm", residual)
    b.linear(f"{at}.ffn", reads=residual, writes=ffn)
    b.linear(f"{at}.ffn_output", reads=ffn, writes=residual)
    b.norm(f"{at}.full_layer_layer_norm", residual)
    return heads
