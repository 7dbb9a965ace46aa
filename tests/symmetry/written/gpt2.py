"""GPT-2: a pre-norm decoder with learned positions (Radford et al., "Language Models are Unsupervised Multitask
Learners", 2019).

Its linear maps are Conv1D, stored input by output, and query, key and value are one map. Nothing stands between query
and key but a constant, so their space is free; positions are learned vectors in the stream.
"""

from typing import Any

from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "LMHeadModel": "lm",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}


@architecture("gpt2")
def gpt2(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a GPT-2 model."""
    head = class_head(class_name, "GPT2", HEADS)
    if config.add_cross_attention:
        raise SymmetryError("gpt2 with cross attention is not described; expected add_cross_attention false")
    prefix = "" if head == "none" else "transformer."

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual: Axis | None = None
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    else:
        tied = head == "lm" and config.tie_word_embeddings
        residual = b.stream("residual", config.hidden_size, norm="layer", tied=tied)
        b.gives("hidden_states", None, None, residual)

    b.embedding(f"{prefix}wte", writes=residual)
    b.embedding(f"{prefix}wpe", writes=residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}h.{layer}"
        heads = b.space(f"layers.{layer}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
        b.attention_maps(f"attentions.{layer}", heads)
        width = Invertible(config.hidden_size // config.num_attention_heads)
        qk = b.space(f"layers.{layer}.qk", width, role="attention.qk", layer=layer, index=(heads.space,))
        vo = b.space(f"layers.{layer}.vo", width, role="attention.vo", layer=layer, index=(heads.space,))
        inner = 4 * config.hidden_size if config.n_inner is None else config.n_inner
        ffn = b.hidden_units(f"layers.{layer}.ffn", inner, layer, config.activation_function)

        fused = Concat(b.per(heads, qk), b.per(heads, qk.dual()), b.per(heads, vo))
        normed = b.norm(f"{at}.ln_1", residual)
        b.linear(f"{at}.attn.c_attn", reads=normed, writes=fused, transposed=True)
        b.linear(f"{at}.attn.c_proj", reads=b.per(heads, vo), writes=residual, transposed=True)
        normed = b.norm(f"{at}.ln_2", residual)
        b.linear(f"{at}.mlp.c_fc", reads=normed, writes=ffn, transposed=True)
        b.linear(f"{at}.mlp.c_proj", reads=ffn, writes=residual, transposed=True)

    normed = b.norm(f"{prefix}ln_f", residual)
    if head == "lm":
        b.linear("lm_head", reads=normed, writes=None, bias=False)
    elif head == "sequence":
        b.linear("score", reads=normed, writes=None, bias=False)
    elif head == "token":
        b.linear("classifier", reads=normed, writes=None)
