"""ModernBERT: pre-norm encoders with rotary positions and GeGLU (Warner et al., "ModernBERT", 2024).

The output of the embeddings' LayerNorm is the residual stream itself, and the first layer reads it without another
norm, so that the stream admits permutations only.
"""

from typing import Any

from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation, Rotary, Scale
from tests.symmetry.written.bert import prediction_units
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "classifier",
    "ForQuestionAnswering": "classifier",
    "ForMaskedLM": "decoder",
}


@architecture("modernbert")
def modernbert(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a ModernBERT model."""
    head = class_head(class_name, "ModernBert", HEADS)
    prefix = "" if head == "none" else "model."
    norm_bias, mlp_bias, attention_bias = config.norm_bias, config.mlp_bias, config.attention_bias

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual: Axis | None = None
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    else:
        residual = b.space("residual", Permutation(config.hidden_size), role="residual")
        b.leaves_out("rotations of the residual stream: the output of the embeddings' LayerNorm is the stream")
        b.gives("hidden_states", None, None, residual)
    b.embedding(f"{prefix}embeddings.tok_embeddings", writes=residual)
    b.norm(f"{prefix}embeddings.norm", residual, bias=norm_bias)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}layers.{layer}"
        heads = b.space(f"layers.{layer}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
        b.attention_maps(f"attentions.{layer}", heads)
        width = config.hidden_size // config.num_attention_heads
        qk = b.space(f"layers.{layer}.qk", Rotary(width), role="attention.qk", layer=layer, index=(heads.space,))
        vo = b.space(f"layers.{layer}.vo", Invertible(width), role="attention.vo", layer=layer, index=(heads.space,))
        ffn = b.space(f"layers.{layer}.ffn", Permutation(config.intermediate_size), role="ffn", layer=layer)
        scale = b.space(f"{ffn.space}.scale", Scale(1, signed=True), role="ffn.scale", layer=layer, index=(ffn.space,))

        if layer > 0:
            b.norm(f"{at}.attn_norm", residual, bias=norm_bias)
        fused = Concat(b.per(heads, qk), b.per(heads, qk.dual()), b.per(heads, vo))
        b.linear(f"{at}.attn.Wqkv", reads=residual, writes=fused, bias=attention_bias)
        b.linear(f"{at}.attn.Wo", reads=b.per(heads, vo), writes=residual, bias=attention_bias)
        b.norm(f"{at}.mlp_norm", residual, bias=norm_bias)
        # The first half passes through the activation, the second multiplies what comes out.
        b.linear(f"{at}.mlp.Wi", reads=residual, writes=Concat(ffn, b.per(ffn, scale)), bias=mlp_bias)
        b.linear(f"{at}.mlp.Wo", reads=b.per(ffn, scale), writes=residual, bias=mlp_bias)
    b.norm(f"{prefix}final_norm", residual, bias=norm_bias)

    if head != "none":
        hidden: Axis | None = None
        if head == "decoder":
            hidden = prediction_units(b, residual, config.hidden_size, config.tie_word_embeddings)
        b.linear("head.dense", reads=residual, writes=hidden, bias=config.classifier_bias)
        normed = b.norm("head.norm", hidden, bias=norm_bias)
        b.linear(head, reads=normed, writes=None, bias=head == "classifier" or config.decoder_bias)
