"""BERT and RoBERTa: post-norm encoders (Devlin et al., 2019; Liu et al., 2019).

Every sublayer's sum passes through a LayerNorm before it is read again, so the residual stream admits permutations
only. Attention has biases everywhere and no position code inside the product.
"""

from typing import Any

from fusionlab.symmetry.architectures import architecture, class_head
from fusionlab.symmetry.axes import Axis
from fusionlab.symmetry.blueprint import Blueprint, BlueprintBuilder, SymmetryError
from fusionlab.symmetry.groups import Invertible, Permutation

HEADS = {
    "Model": "none",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}
FAMILIES = {"bert": "Bert", "roberta": "Roberta"}


@architecture("bert", "roberta")
def bert(config: Any, class_name: str) -> Blueprint:
    """Describe a BERT or RoBERTa model."""
    family = config.model_type
    head = class_head(class_name, FAMILIES[family], HEADS)
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise SymmetryError(f"{family} as a decoder is not described; expected is_decoder false")
    prefix = "" if head == "none" else f"{family}."

    b = BlueprintBuilder(family)
    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual: Axis | None = None
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    else:
        residual = b.space("residual", Permutation(config.hidden_size), role="residual")
        b.leaves_out("rotations of the residual stream: LayerNorm after each sublayer admits permutations only")

    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    b.norm(f"{prefix}embeddings.LayerNorm", residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}encoder.layer.{layer}"
        heads = b.space(f"layers.{layer}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
        width = Invertible(config.hidden_size // config.num_attention_heads)
        qk = b.space(f"layers.{layer}.qk", width, role="attention.qk", layer=layer, index=(heads.space,))
        vo = b.space(f"layers.{layer}.vo", width, role="attention.vo", layer=layer, index=(heads.space,))
        ffn = b.space(f"layers.{layer}.ffn", Permutation(config.intermediate_size), role="ffn", layer=layer)

        b.linear(f"{at}.attention.self.query", reads=residual, writes=b.per(heads, qk))
        b.linear(f"{at}.attention.self.key", reads=residual, writes=b.per(heads, qk.dual()))
        b.linear(f"{at}.attention.self.value", reads=residual, writes=b.per(heads, vo))
        b.linear(f"{at}.attention.output.dense", reads=b.per(heads, vo), writes=residual)
        b.norm(f"{at}.attention.output.LayerNorm", residual)
        b.linear(f"{at}.intermediate.dense", reads=residual, writes=ffn)
        b.linear(f"{at}.output.dense", reads=ffn, writes=residual)
        b.norm(f"{at}.output.LayerNorm", residual)

    if head == "none" or (head == "sequence" and family == "bert"):
        b.linear(f"{prefix}pooler.dense", reads=residual, writes=None)
    if head == "sequence" and family == "roberta":
        b.linear("classifier.dense", reads=residual, writes=None)
        b.linear("classifier.out_proj", reads=None, writes=None)
    elif head == "sequence":
        b.linear("classifier", reads=None, writes=None)
    elif head == "token":
        b.linear("classifier", reads=residual, writes=None)
    return b.build()
