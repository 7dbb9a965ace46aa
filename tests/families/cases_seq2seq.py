"""T5, BART and Whisper: encoders and decoders that cross-attention couples."""

from torch import nn
from transformers import (
    BartConfig,
    BartForCausalLM,
    BartForConditionalGeneration,
    BartForQuestionAnswering,
    BartForSequenceClassification,
    BartModel,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
    T5ForQuestionAnswering,
    T5ForSequenceClassification,
    T5ForTokenClassification,
    T5Model,
    WhisperConfig,
    WhisperForAudioClassification,
    WhisperForConditionalGeneration,
    WhisperModel,
)

from tests.families.harness import Case

# Another number of layers, heads and units in the decoder than in the encoder where the config allows it.
T5 = {
    "vocab_size": 40,
    "d_model": 24,
    "d_kv": 4,
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 5,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
}
BOTH = {
    "vocab_size": 40,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 18,
}
BART = {**BOTH, "max_position_embeddings": 16}
WHISPER = {
    **BOTH,
    "num_mel_bins": 5,
    "max_source_positions": 6,
    "max_target_positions": 16,
    "classifier_proj_size": 7,
    "num_labels": 5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "begin_suppress_tokens": None,
}


def t5_with_its_own_output_embedding() -> T5ForConditionalGeneration:
    """T5 v1.1 as its checkpoints are loaded, whatever transformers 5 writes into the config."""
    model = T5ForConditionalGeneration(T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False))
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    assert model.config.tie_word_embeddings
    return model


def t5_without_residual(stack: str, layers: int) -> tuple[str, ...]:
    """What no space touches in a stack whose stream is the model's output."""
    norms = 2 if stack == "encoder" else 3
    return (
        f"{stack}.embed_tokens.weight",
        *(f"{stack}.block.{layer}.layer.{n}.layer_norm.weight" for layer in range(layers) for n in range(norms)),
        f"{stack}.final_layer_norm.weight",
    )


def without_residual(stack: str, layers: int, norm_first: bool) -> tuple[str, ...]:
    """What no space touches in the layers of BART or Whisper whose stream is the model's output."""

    def with_norm(norm: str, bias: str) -> tuple[str, ...]:
        weights = (f"{norm}.weight", f"{norm}.bias")
        return (*weights, bias) if norm_first else (bias, *weights)

    cross = () if stack == "encoder" else with_norm("encoder_attn_layer_norm", "encoder_attn.out_proj.bias")
    return tuple(
        f"{stack}.layers.{layer}.{name}"
        for layer in range(layers)
        for name in (
            *with_norm("self_attn_layer_norm", "self_attn.out_proj.bias"),
            *cross,
            *with_norm("final_layer_norm", "fc2.bias"),
        )
    )


CLASSIFICATION_HEAD = (
    "classification_head.dense.bias",
    "classification_head.out_proj.weight",
    "classification_head.out_proj.bias",
)

CASES = [
    Case(
        "t5",
        lambda: T5Model(T5Config(**T5)),
        ("shared.weight", *t5_without_residual("encoder", 2), *t5_without_residual("decoder", 3)),
        notes=("output",),
    ),
    Case(
        "t5-encoder",
        lambda: T5EncoderModel(T5Config(**T5)),
        ("shared.weight", *t5_without_residual("encoder", 2)),
        notes=("output",),
    ),
    Case("t5-lm", lambda: T5ForConditionalGeneration(T5Config(**T5)), (), notes=("untie",)),
    Case(
        "t5-v1.1-lm",
        lambda: T5ForConditionalGeneration(T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
        (),
        notes=("untie",),
    ),
    Case("t5-v1.1-lm-untied", t5_with_its_own_output_embedding, ()),
    Case(
        "t5-sequence",
        lambda: T5ForSequenceClassification(T5Config(**T5, num_labels=3, decoder_start_token_id=0)),
        CLASSIFICATION_HEAD,
    ),
    Case("t5-token", lambda: T5ForTokenClassification(T5Config(**T5, num_labels=3)), ("classifier.bias",)),
    Case("t5-qa", lambda: T5ForQuestionAnswering(T5Config(**T5, feed_forward_proj="gated-gelu")), ("qa_outputs.bias",)),
    Case(
        "bart",
        lambda: BartModel(BartConfig(**BART)),
        (
            "shared.weight",
            *(
                f"{stack}.{name}"
                for stack in ("encoder", "decoder")
                for name in (
                    "embed_tokens.weight",
                    "embed_positions.weight",
                    "layernorm_embedding.weight",
                    "layernorm_embedding.bias",
                )
            ),
            *without_residual("encoder", 2, norm_first=False),
            *without_residual("decoder", 3, norm_first=False),
        ),
        notes=("output",),
    ),
    Case(
        "bart-lm",
        lambda: BartForConditionalGeneration(BartConfig(**BART, scale_embedding=True)),
        ("final_logits_bias",),
        notes=("rotations",),
    ),
    Case(
        "bart-lm-relu-untied",
        lambda: BartForConditionalGeneration(BartConfig(**BART, activation_function="relu", tie_word_embeddings=False)),
        ("final_logits_bias",),
        unread=("model.shared.weight",),
    ),
    Case("bart-sequence", lambda: BartForSequenceClassification(BartConfig(**BART)), CLASSIFICATION_HEAD),
    # transformers gives the decoder's cache as many layers as the encoder has.
    Case(
        "bart-decoder",
        lambda: BartForCausalLM(BartConfig(**{**BART, "encoder_layers": 3})),
        (),
        notes=("rotations",),
    ),
    Case("bart-qa", lambda: BartForQuestionAnswering(BartConfig(**BART)), ("qa_outputs.bias",), notes=("rotations",)),
    Case(
        "whisper",
        lambda: WhisperModel(WhisperConfig(**WHISPER)),
        (
            "encoder.conv2.bias",
            "encoder.embed_positions.weight",
            *without_residual("encoder", 2, norm_first=True),
            "encoder.layer_norm.weight",
            "encoder.layer_norm.bias",
            "decoder.embed_tokens.weight",
            "decoder.embed_positions.weight",
            *without_residual("decoder", 3, norm_first=True),
            "decoder.layer_norm.weight",
            "decoder.layer_norm.bias",
        ),
        unread=("encoder.embed_positions.weight",),
    ),
    Case(
        "whisper-lm",
        lambda: WhisperForConditionalGeneration(WhisperConfig(**WHISPER)),
        (),
        notes=("untie",),
        unread=("model.encoder.embed_positions.weight",),
    ),
    Case(
        "whisper-lm-untied",
        lambda: WhisperForConditionalGeneration(WhisperConfig(**WHISPER, tie_word_embeddings=False)),
        (),
        unread=("model.encoder.embed_positions.weight",),
    ),
    Case(
        "whisper-audio",
        lambda: WhisperForAudioClassification(WhisperConfig(**WHISPER)),
        ("projector.bias", "classifier.weight", "classifier.bias"),
        unread=("encoder.embed_positions.weight",),
    ),
    Case(
        "whisper-audio-weighted",
        lambda: WhisperForAudioClassification(WhisperConfig(**WHISPER, use_weighted_layer_sum=True)),
        ("layer_weights", "projector.bias", "classifier.weight", "classifier.bias"),
        unread=("encoder.embed_positions.weight",),
    ),
]
