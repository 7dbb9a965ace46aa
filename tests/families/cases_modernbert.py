"""ModernBERT."""

from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
)

from tests.families.harness import Case

BIASED = {"norm_bias": True, "mlp_bias": True, "attention_bias": True, "classifier_bias": True}


def config(**changes: object) -> ModernBertConfig:
    """The first and the last layer attend to all tokens, the others to their neighbours."""
    return ModernBertConfig(
        hidden_size=24,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=20,
        vocab_size=40,
        max_position_embeddings=32,
        local_attention=4,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 0),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 1),
        **changes,
    )


# The output of question answering is no one tensor of logits, so that the check of stored models does not apply.
CASES = [
    Case(
        "modernbert",
        lambda: ModernBertModel(config()),
        (
            "embeddings.tok_embeddings.weight",
            "embeddings.norm.weight",
            "layers.0.mlp_norm.weight",
            *(f"layers.{layer}.{name}.weight" for layer in range(1, 4) for name in ("attn_norm", "mlp_norm")),
            "final_norm.weight",
        ),
        notes=("output",),
    ),
    Case(
        "modernbert-sequence",
        lambda: ModernBertForSequenceClassification(config()),
        ("head.norm.weight", "classifier.weight", "classifier.bias"),
    ),
    Case(
        "modernbert-sequence-mean-biased",
        lambda: ModernBertForSequenceClassification(config(classifier_pooling="mean", **BIASED)),
        ("head.dense.bias", "head.norm.weight", "head.norm.bias", "classifier.weight", "classifier.bias"),
    ),
    Case(
        "modernbert-token",
        lambda: ModernBertForTokenClassification(config()),
        ("head.norm.weight", "classifier.weight", "classifier.bias"),
    ),
    Case(
        "modernbert-question",
        lambda: ModernBertForQuestionAnswering(config()),
        ("head.norm.weight", "classifier.weight", "classifier.bias"),
        stored=False,
    ),
    Case("modernbert-masked", lambda: ModernBertForMaskedLM(config()), ("decoder.bias",)),
    Case("modernbert-masked-biased", lambda: ModernBertForMaskedLM(config(decoder_bias=False, **BIASED)), ()),
    Case(
        "modernbert-masked-untied",
        lambda: ModernBertForMaskedLM(config(tie_word_embeddings=False)),
        ("decoder.bias",),
    ),
]
