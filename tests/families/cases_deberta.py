"""DeBERTa, DeBERTa-v2 and v3."""

from collections.abc import Iterator

import torch
from torch import nn
from transformers import (
    DebertaConfig,
    DebertaForMaskedLM,
    DebertaForQuestionAnswering,
    DebertaForSequenceClassification,
    DebertaForTokenClassification,
    DebertaModel,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DebertaV2ForQuestionAnswering,
    DebertaV2ForSequenceClassification,
    DebertaV2ForTokenClassification,
    DebertaV2Model,
)
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention

from tests.families.harness import Case
from tests.symmetry.written.registry import is_before

declare = DisentangledSelfAttention.__init__


def declare_in_default_dtype(self: DisentangledSelfAttention, config: DebertaConfig) -> None:
    declare(self, config)
    self.q_bias, self.v_bias = (nn.Parameter(b.to(torch.get_default_dtype())) for b in (self.q_bias, self.v_bias))


# The first version declares these two in float32, so that reading a float64 checkpoint would round them.
DisentangledSelfAttention.__init__ = declare_in_default_dtype

BOTH = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
SHARED = {**BOTH, "share_att_key": True}
V3 = {**SHARED, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "position_buckets": 16}
NARROW = {"embedding_size": 16, "type_vocab_size": 2}
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 40,
    "max_position_embeddings": 32,
}


def v1(**changes: object) -> DebertaConfig:
    return DebertaConfig(**SIZES, **changes)


def v2(**changes: object) -> DebertaV2Config:
    return DebertaV2Config(**SIZES, **changes)


POOLED = ("pooler.dense.bias", "classifier.weight", "classifier.bias")
# Before transformers 5.20 its own from_pretrained failed on what its save_pretrained had written of this head.
NEW_HEADS_LOAD = not is_before("transformers", "5.20")
LEGACY = ("cls.predictions.decoder.bias", "cls.predictions.bias")


def stream(*before: str, after: tuple[str, ...] = ()) -> Iterator[str]:
    """What the residual stream alone touches in a model without a head."""
    yield from ("embeddings.word_embeddings.weight", *before)
    yield from ("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias", *after)
    for layer in range(2):
        for name in ("attention.output", "output"):
            yield f"encoder.layer.{layer}.{name}.dense.bias"
            yield f"encoder.layer.{layer}.{name}.LayerNorm.weight"
            yield f"encoder.layer.{layer}.{name}.LayerNorm.bias"


POSITIONS = "embeddings.position_embeddings.weight"

# The output of question answering is no one tensor of logits, so that the check of stored models does not apply.
CASES = [
    Case("deberta", lambda: DebertaModel(v1(**BOTH)), tuple(stream(POSITIONS)), notes=("output",)),
    Case(
        "deberta-sequence",
        lambda: DebertaForSequenceClassification(v1(position_biased_input=False, **BOTH)),
        POOLED,
    ),
    Case(
        "deberta-sequence-c2p",
        lambda: DebertaForSequenceClassification(v1(relative_attention=True, pos_att_type=["c2p"])),
        POOLED,
    ),
    Case(
        "deberta-sequence-p2c",
        lambda: DebertaForSequenceClassification(v1(relative_attention=True, pos_att_type="p2c", **NARROW)),
        POOLED,
    ),
    Case(
        "deberta-token-absolute",
        lambda: DebertaForTokenClassification(v1()),
        ("classifier.bias",),
    ),
    Case(
        "deberta-token-unread-positions",
        lambda: DebertaForTokenClassification(v1(relative_attention=True, type_vocab_size=2)),
        ("deberta.encoder.rel_embeddings.weight", "classifier.bias"),
    ),
    Case(
        "deberta-question",
        lambda: DebertaForQuestionAnswering(v1(hidden_act="relu", **BOTH)),
        ("qa_outputs.bias",),
        stored=False,
    ),
    Case("deberta-masked", lambda: DebertaForMaskedLM(v1(**BOTH)), LEGACY),
    Case("deberta-masked-narrow", lambda: DebertaForMaskedLM(v1(**BOTH, **NARROW)), LEGACY),
    Case("deberta-masked-untied", lambda: DebertaForMaskedLM(v1(tie_word_embeddings=False, **BOTH)), LEGACY),
    Case(
        "deberta-masked-new",
        lambda: DebertaForMaskedLM(v1(legacy=False, **BOTH)),
        ("lm_predictions.lm_head.bias",),
        stored=NEW_HEADS_LOAD,
    ),
    Case(
        "deberta-v2",
        lambda: DebertaV2Model(v2(**BOTH)),
        tuple(stream(POSITIONS)),
        notes=("output",),
        unread=(
            "encoder.layer.0.attention.self.pos_key_proj.bias",
            "encoder.layer.1.attention.self.pos_key_proj.bias",
        ),
    ),
    Case(
        "deberta-v3",
        lambda: DebertaV2Model(v2(**V3)),
        tuple(
            stream(
                after=("encoder.rel_embeddings.weight", "encoder.LayerNorm.weight", "encoder.LayerNorm.bias"),
            )
        ),
    ),
    Case("deberta-v3-sequence", lambda: DebertaV2ForSequenceClassification(v2(**V3)), POOLED),
    Case(
        "deberta-v2-sequence-conv",
        lambda: DebertaV2ForSequenceClassification(v2(conv_kernel_size=3, conv_act="gelu", **V3)),
        POOLED,
    ),
    Case(
        "deberta-v2-sequence-c2p",
        lambda: DebertaV2ForSequenceClassification(v2(relative_attention=True, pos_att_type=["c2p"])),
        POOLED,
    ),
    Case(
        "deberta-v2-sequence-p2c",
        lambda: DebertaV2ForSequenceClassification(v2(relative_attention=True, pos_att_type=["p2c"], **NARROW)),
        POOLED,
    ),
    Case(
        "deberta-v2-token-conv-narrow",
        lambda: DebertaV2ForTokenClassification(v2(conv_kernel_size=3, **SHARED, **NARROW)),
        ("classifier.bias",),
    ),
    Case("deberta-v2-token-absolute", lambda: DebertaV2ForTokenClassification(v2()), ("classifier.bias",)),
    Case(
        "deberta-v2-token-normed-positions",
        lambda: DebertaV2ForTokenClassification(v2(norm_rel_ebd="layer_norm", **BOTH)),
        ("classifier.bias",),
        unread=(
            "deberta.encoder.layer.0.attention.self.pos_key_proj.bias",
            "deberta.encoder.layer.1.attention.self.pos_key_proj.bias",
        ),
    ),
    Case(
        "deberta-v2-token-shared-c2p",
        lambda: DebertaV2ForTokenClassification(v2(**{**SHARED, "pos_att_type": ["c2p"]})),
        ("classifier.bias",),
    ),
    Case(
        "deberta-v2-token-shared-p2c",
        lambda: DebertaV2ForTokenClassification(v2(**{**SHARED, "pos_att_type": ["p2c"]})),
        ("classifier.bias",),
    ),
    Case(
        "deberta-v2-token-unread-positions",
        lambda: DebertaV2ForTokenClassification(v2(relative_attention=True, norm_rel_ebd="layer_norm")),
        (
            "deberta.encoder.rel_embeddings.weight",
            "deberta.encoder.LayerNorm.weight",
            "deberta.encoder.LayerNorm.bias",
            "classifier.bias",
        ),
    ),
    Case(
        "deberta-v2-token-unread-shared-positions",
        lambda: DebertaV2ForTokenClassification(v2(**{**SHARED, "pos_att_type": None})),
        ("classifier.bias",),
        unread=("deberta.encoder.rel_embeddings.weight",),
    ),
    Case(
        "deberta-v3-question",
        lambda: DebertaV2ForQuestionAnswering(v2(**V3)),
        ("qa_outputs.bias",),
        stored=False,
    ),
    Case("deberta-v2-masked", lambda: DebertaV2ForMaskedLM(v2(**SHARED)), LEGACY),
    Case(
        "deberta-v2-masked-narrow",
        lambda: DebertaV2ForMaskedLM(v2(**V3, **NARROW)),
        LEGACY,
        notes=("embedding",),
    ),
    Case(
        "deberta-v2-masked-untied-narrow",
        lambda: DebertaV2ForMaskedLM(v2(tie_word_embeddings=False, conv_kernel_size=3, **V3, **NARROW)),
        LEGACY,
    ),
    Case(
        "deberta-v2-masked-new",
        lambda: DebertaV2ForMaskedLM(v2(legacy=False, **V3)),
        ("lm_predictions.lm_head.bias",),
        stored=NEW_HEADS_LOAD,
    ),
]
