"""BERT, RoBERTa, XLM-RoBERTa and CamemBERT: post-norm encoders.

Devlin et al., "BERT" (2019); Liu et al., "RoBERTa" (2019); Conneau et al., "Unsupervised cross-lingual representation
learning at scale" (2020); Martin et al., "CamemBERT" (2020).

Every sublayer's sum passes through a LayerNorm before it is read again, so the residual stream admits permutations
only. Attention has biases everywhere and no position code inside the product.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "question",
    "ForMaskedLM": "masked",
}
FAMILIES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}


@architecture(*FAMILIES)
def bert(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a BERT, RoBERTa, XLM-RoBERTa or CamemBERT model."""
    is_bert = config.model_type == "bert"
    head = class_head(class_name, FAMILIES[config.model_type], HEADS)
    refuse_decoder(config)
    prefix = "" if head == "none" else "bert." if is_bert else "roberta."

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual = post_norm_stream(b, config.hidden_size, is_output=head == "none")
    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        b.embedding(f"{prefix}embeddings.{table}", writes=residual)
    b.norm(f"{prefix}embeddings.LayerNorm", residual)
    for layer in range(config.num_hidden_layers):
        encoder_layer(b, f"{prefix}encoder.layer.{layer}", layer, config, residual)

    if head == "none" or (head == "sequence" and is_bert):
        b.linear(f"{prefix}pooler.dense", reads=residual, writes=None)
    if head == "masked":
        at, transform, norm = (
            ("cls.predictions", "transform.dense", "transform.LayerNorm")
            if is_bert
            else ("lm_head", "dense", "layer_norm")
        )
        hidden = prediction_units(b, residual, config.hidden_size, config.tie_word_embeddings)
        b.linear(f"{at}.{transform}", reads=residual, writes=hidden)
        normed = b.norm(f"{at}.{norm}", hidden)
        b.linear(f"{at}.decoder", reads=normed, writes=None)
        b.parameter(f"{at}.bias", None)
    elif head == "sequence" and is_bert:
        b.linear("classifier", reads=None, writes=None)
    else:
        classification_head(b, head, residual)


def encoder_layer(b: BlueprintBuilder, at: str, layer: int, config: Any, residual: Axis | None) -> None:
    """One encoder layer with the parameter names that BERT gave it."""
    heads, qk, vo = attention_spaces(b, layer, config.num_attention_heads, config.hidden_size)
    b.attention_maps(f"attentions.{layer}", heads)
    ffn = b.hidden_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)
    b.linear(f"{at}.attention.self.query", reads=residual, writes=b.per(heads, qk))
    b.linear(f"{at}.attention.self.key", reads=residual, writes=b.per(heads, qk.dual()))
    b.linear(f"{at}.attention.self.value", reads=residual, writes=b.per(heads, vo))
    b.linear(f"{at}.attention.output.dense", reads=b.per(heads, vo), writes=residual)
    b.norm(f"{at}.attention.output.LayerNorm", residual)
    b.linear(f"{at}.intermediate.dense", reads=residual, writes=ffn)
    b.linear(f"{at}.output.dense", reads=ffn, writes=residual)
    b.norm(f"{at}.output.LayerNorm", residual)


def post_norm_stream(b: BlueprintBuilder, size: int, is_output: bool) -> Axis | None:
    """The residual stream of a post-norm encoder, None where the model returns it."""
    if is_output:
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
        return None
    residual = b.space("residual", Permutation(size), role="residual")
    b.leaves_out("rotations of the residual stream: LayerNorm after each sublayer admits permutations only")
    b.gives("hidden_states", None, None, residual)
    return residual


def attention_spaces(b: BlueprintBuilder, layer: int, count: int, width: int) -> tuple[Along, Along, Along]:
    """Heads of one layer, and in each what query and key share and what value and output share."""
    heads = b.space(f"layers.{layer}.heads", Permutation(count), role="heads", layer=layer)
    inside = Invertible(width // count)
    qk = b.space(f"layers.{layer}.qk", inside, role="attention.qk", layer=layer, index=(heads.space,))
    vo = b.space(f"layers.{layer}.vo", inside, role="attention.vo", layer=layer, index=(heads.space,))
    return heads, qk, vo


def prediction_units(b: BlueprintBuilder, table: Axis | None, size: int, tied: bool) -> Axis | None:
    """The axis that a masked language model's output embedding reads; its input embedding's if they are tied."""
    return table if tied else b.space("predictions", Permutation(size), role="ffn")


def classification_head(b: BlueprintBuilder, head: str, residual: Axis | None) -> None:
    """The heads that RoBERTa and its kin have for classification of sequences and tokens and for question answering."""
    if head == "sequence":
        b.linear("classifier.dense", reads=residual, writes=None)
        b.linear("classifier.out_proj", reads=None, writes=None)
    elif head == "token":
        b.linear("classifier", reads=residual, writes=None)
    elif head == "question":
        b.linear("qa_outputs", reads=residual, writes=None)


def refuse_decoder(config: Any) -> None:
    """Refuse an encoder's config that asks for a decoder."""
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise SymmetryError(f"{config.model_type} as a decoder is not described; expected is_decoder false")
