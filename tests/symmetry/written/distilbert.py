"""DistilBERT: BERT with half the layers and no token types (Sanh et al., 2019)."""

from typing import Any

from fusionlab.symmetry.builder import BlueprintBuilder
from tests.symmetry.written.bert import (
    HEADS,
    attention_spaces,
    classification_head,
    post_norm_stream,
    prediction_units,
)
from tests.symmetry.written.registry import architecture, class_head


@architecture("distilbert")
def distilbert(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a DistilBERT model; sinusoidal positions are parameters like learned ones."""
    head = class_head(class_name, "DistilBert", HEADS)
    prefix = "" if head == "none" else "distilbert."

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual = post_norm_stream(b, config.dim, is_output=head == "none")
    for table in ("word_embeddings", "position_embeddings"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    b.norm(f"{prefix}embeddings.LayerNorm", residual)

    for layer in range(config.n_layers):
        at = f"{prefix}transformer.layer.{layer}"
        heads, qk, vo = attention_spaces(b, layer, config.n_heads, config.dim)
        b.attention_maps(f"attentions.{layer}", heads)
        ffn = b.hidden_units(f"layers.{layer}.ffn", config.hidden_dim, layer, config.activation)
        b.linear(f"{at}.attention.q_lin", reads=residual, writes=b.per(heads, qk))
        b.linear(f"{at}.attention.k_lin", reads=residual, writes=b.per(heads, qk.dual()))
        b.linear(f"{at}.attention.v_lin", reads=residual, writes=b.per(heads, vo))
        b.linear(f"{at}.attention.out_lin", reads=b.per(heads, vo), writes=residual)
        b.norm(f"{at}.sa_layer_norm", residual)
        b.linear(f"{at}.ffn.lin1", reads=residual, writes=ffn)
        b.linear(f"{at}.ffn.lin2", reads=ffn, writes=residual)
        b.norm(f"{at}.output_layer_norm", residual)

    if head == "masked":
        hidden = prediction_units(b, residual, config.dim, config.tie_word_embeddings)
        b.linear("vocab_transform", reads=residual, writes=hidden)
        normed = b.norm("vocab_layer_norm", hidden)
        b.linear("vocab_projector", reads=normed, writes=None)
    elif head == "sequence":
        b.linear("pre_classifier", reads=residual, writes=None)
        b.linear("classifier", reads=None, writes=None)
    else:
        classification_head(b, head, residual)
