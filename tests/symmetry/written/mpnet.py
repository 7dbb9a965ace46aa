"""MPNet: a post-norm encoder with relative position biases (Song et al., 2020).

One table of biases, with a column for each head, is added to the scores of every layer, so that heads are permuted
in all layers at once.
"""

from typing import Any

from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.bert import (
    HEADS,
    classification_head,
    post_norm_stream,
    prediction_units,
)
from tests.symmetry.written.registry import architecture, class_head


@architecture("mpnet")
def mpnet(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe an MPNet model."""
    head = class_head(class_name, "MPNet", HEADS)
    prefix = "" if head == "none" else "mpnet."

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual = post_norm_stream(b, config.hidden_size, is_output=head == "none")
    for table in ("word_embeddings", "position_embeddings"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    b.norm(f"{prefix}embeddings.LayerNorm", residual)

    heads = b.space("heads", Permutation(config.num_attention_heads), role="heads")
    b.leaves_out("a permutation of heads for each layer: all layers share one table of position biases")
    b.attention_maps("attentions", heads)
    b.embedding(f"{prefix}encoder.relative_attention_bias", writes=heads)
    inside = Invertible(config.hidden_size // config.num_attention_heads)
    for layer in range(config.num_hidden_layers):
        at = f"{prefix}encoder.layer.{layer}"
        qk = b.space(f"layers.{layer}.qk", inside, role="attention.qk", layer=layer, index=(heads.space,))
        vo = b.space(f"layers.{layer}.vo", inside, role="attention.vo", layer=layer, index=(heads.space,))
        ffn = b.hidden_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)
        b.linear(f"{at}.attention.attn.q", reads=residual, writes=b.per(heads, qk))
        b.linear(f"{at}.attention.attn.k", reads=residual, writes=b.per(heads, qk.dual()))
        b.linear(f"{at}.attention.attn.v", reads=residual, writes=b.per(heads, vo))
        b.linear(f"{at}.attention.attn.o", reads=b.per(heads, vo), writes=residual)
        b.norm(f"{at}.attention.LayerNorm", residual)
        b.linear(f"{at}.intermediate.dense", reads=residual, writes=ffn)
        b.linear(f"{at}.output.dense", reads=ffn, writes=residual)
        b.norm(f"{at}.output.LayerNorm", residual)

    if head == "none":
        b.linear("pooler.dense", reads=residual, writes=None)
    elif head == "masked":
        hidden = prediction_units(b, residual, config.hidden_size, config.tie_word_embeddings)
        b.linear("lm_head.dense", reads=residual, writes=hidden)
        normed = b.norm("lm_head.layer_norm", hidden)
        b.linear("lm_head.decoder", reads=normed, writes=None)
        b.parameter("lm_head.bias", None)
    else:
        classification_head(b, head, residual)
