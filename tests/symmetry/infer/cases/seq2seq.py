"""Encoders with a decoder that looks at them."""

from tests.symmetry.infer.cases.sample import VOCABULARY, Inputs, Sample, constant, pretrained, together, tokens

BART = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 28,
    "decoder_ffn_dim": 34,
    "max_position_embeddings": 19,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "d_kv": 5,
    "d_ff": 28,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9,
    "decoder_start_token_id": 0,
}


def pairs(length: int = 7) -> Inputs:
    """Token ids for both sides; five for the decoder."""
    return together(tokens(length=length), tokens("decoder_input_ids", length=5))


def bart(name: str, head: str, **config: object) -> Sample:
    return pretrained(name, head, pairs(), **(BART | config))


def t5(name: str, head: str, **config: object) -> Sample:
    return pretrained(name, head, pairs(), **(T5 | config))


SAMPLES: tuple[Sample, ...] = (
    bart("mbart", "MBartForConditionalGeneration"),
    bart("pegasus", "PegasusForConditionalGeneration", scale_embedding=True, encoder_layers=2),
    bart("marian", "MarianMTModel", activation_function="swish", decoder_layers=2),
    bart("m2m_100", "M2M100ForConditionalGeneration", scale_embedding=True),
    t5("mt5", "MT5ForConditionalGeneration", num_layers=2, tie_word_embeddings=False),
    t5("longt5", "LongT5ForConditionalGeneration", local_radius=3, encoder_attention_type="local"),
    t5(
        "longt5 (a global token for each block)",
        "LongT5ForConditionalGeneration",
        local_radius=3,
        global_block_size=3,
        encoder_attention_type="transient-global",
        feed_forward_proj="gated-gelu",
    ),
    pretrained(
        "led",
        "LEDForConditionalGeneration",
        together(pairs(), constant("global_attention_mask", *[[1, 0, 0, 0, 0, 1, 0]] * 3)),
        **{k: v for k, v in BART.items() if k != "max_position_embeddings"},
        max_encoder_position_embeddings=19,
        max_decoder_position_embeddings=17,
        attention_window=4,
    ),
    t5(
        "switch_transformers",
        "SwitchTransformersForConditionalGeneration",
        num_layers=2,
        num_decoder_layers=2,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
        num_experts=3,
        expert_capacity=6,
    ),
    bart("blenderbot", "BlenderbotForConditionalGeneration"),
    t5("umt5", "UMT5ForConditionalGeneration"),
    pretrained(
        "prophetnet",
        "ProphetNetForConditionalGeneration",
        pairs(),
        vocab_size=VOCABULARY,
        hidden_size=24,
        encoder_ffn_dim=28,
        decoder_ffn_dim=34,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        max_position_embeddings=19,
        ngram=3,
        num_buckets=9,
        relative_max_distance=11,
        decoder_start_token_id=2,
    ),
    bart(
        "nllb_moe",
        "NllbMoeForConditionalGeneration",
        encoder_layers=2,
        decoder_layers=2,
        encoder_sparse_step=2,
        decoder_sparse_step=2,
        num_experts=5,
        expert_capacity=6,
        router_ignore_padding_tokens=False,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    ),
)
