"""Decoders without experts."""

from tests.symmetry.infer.cases.sample import VOCABULARY, Sample, pretrained, tokens

TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 19,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FALCON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "ffn_hidden_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 19,
}
LOCAL_AND_GLOBAL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}


def decoder(name: str, head: str, **config: object) -> Sample:
    return pretrained(name, head, tokens(), **(TEXT | config))


SAMPLES: tuple[Sample, ...] = (
    decoder("gemma", "GemmaForCausalLM", head_dim=10),
    decoder("gemma3", "Gemma3ForCausalLM", head_dim=10, query_pre_attn_scalar=7, **LOCAL_AND_GLOBAL),
    decoder("cohere", "CohereForCausalLM", num_key_value_heads=4),
    decoder(
        "cohere (norms of queries and keys)",
        "CohereForCausalLM",
        head_dim=10,
        num_attention_heads=6,
        num_key_value_heads=3,
        use_qk_norm=True,
        attention_bias=True,
    ),
    decoder("cohere2", "Cohere2ForCausalLM", head_dim=10, **LOCAL_AND_GLOBAL),
    decoder("phi", "PhiForCausalLM", hidden_size=48),
    decoder("phi (norms of queries and keys)", "PhiForCausalLM", hidden_size=48, qk_layernorm=True),
    pretrained("falcon", "FalconForCausalLM", tokens(), **FALCON),
    pretrained(
        "falcon (grouped queries)",
        "FalconForCausalLM",
        tokens(),
        **FALCON,
        new_decoder_architecture=True,
        num_kv_heads=2,
        bias=True,
    ),
    pretrained(
        "falcon (alibi)",
        "FalconForCausalLM",
        tokens(),
        **FALCON,
        alibi=True,
        multi_query=False,
        parallel_attn=False,
        bias=True,
    ),
    pretrained(
        "bloom",
        "BloomForCausalLM",
        tokens(),
        vocab_size=VOCABULARY,
        hidden_size=20,
        n_layer=2,
        n_head=4,
        pad_token_id=0,
    ),
    pretrained(
        "mpt",
        "MptForCausalLM",
        tokens(),
        vocab_size=VOCABULARY,
        d_model=20,
        n_heads=4,
        n_layers=2,
        expansion_ratio=3,
        max_seq_len=19,
    ),
    *(
        pretrained(
            name,
            "GPTBigCodeForCausalLM",
            tokens(),
            vocab_size=VOCABULARY,
            n_embd=24,
            n_layer=2,
            n_head=4,
            n_inner=28,
            n_positions=19,
            multi_query=multi_query,
            bos_token_id=1,
            eos_token_id=2,
        )
        for name, multi_query in (("gpt_bigcode", True), ("gpt_bigcode (a key for each query)", False))
    ),
    decoder("starcoder2", "Starcoder2ForCausalLM", sliding_window=4),
    decoder("stablelm", "StableLmForCausalLM", hidden_size=32, partial_rotary_factor=0.5, use_qkv_bias=True),
    decoder(
        "stablelm (parallel, norms of queries and keys)",
        "StableLmForCausalLM",
        hidden_size=32,
        qk_layernorm=True,
        use_parallel_residual=True,
    ),
    decoder(
        "granite",
        "GraniteForCausalLM",
        embedding_multiplier=1.5,
        logits_scaling=0.75,
        residual_multiplier=0.6,
        attention_multiplier=0.3,
    ),
    decoder("smollm3", "SmolLM3ForCausalLM", no_rope_layers=[1, 0]),
    decoder("glm", "GlmForCausalLM", head_dim=12),
    decoder("glm4", "Glm4ForCausalLM", head_dim=12),
    decoder("olmo", "OlmoForCausalLM"),
    decoder("olmo (clipped)", "OlmoForCausalLM", clip_qkv=0.5),
    decoder("olmo3", "Olmo3ForCausalLM", **LOCAL_AND_GLOBAL),
    decoder("helium", "HeliumForCausalLM", head_dim=6),
    decoder("exaone4", "Exaone4ForCausalLM", head_dim=10, **LOCAL_AND_GLOBAL),
    decoder(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=3,
        linear_num_value_heads=6,
        linear_key_head_dim=5,
        linear_value_head_dim=7,
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=18,
        shared_expert_intermediate_size=22,
        mlp_only_layers=[0],
    ),
)
