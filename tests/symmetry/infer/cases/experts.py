"""Decoders whose feed-forward parts are experts that a router chooses among."""

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
# The latent attention of DeepSeek: ranks of the latents, and a head's coordinates.
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 11,
    "qk_nope_head_dim": 5,
    "qk_rope_head_dim": 6,
    "v_head_dim": 3,
}


def experts(name: str, head: str, **config: object) -> Sample:
    return pretrained(name, head, tokens(), **(TEXT | config))


SAMPLES: tuple[Sample, ...] = (
    experts("mixtral", "MixtralForCausalLM", head_dim=10, num_local_experts=5, num_experts_per_tok=2),
    experts(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        mlp_only_layers=[0],
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=18,
        shared_expert_intermediate_size=22,
    ),
    experts(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        head_dim=10,
        mlp_only_layers=[1],
        num_experts=5,
        num_experts_per_tok=3,
        moe_intermediate_size=18,
        norm_topk_prob=True,
    ),
    experts("olmoe", "OlmoeForCausalLM", num_experts=5, num_experts_per_tok=2, num_hidden_layers=1),
    experts(
        "granitemoe",
        "GraniteMoeForCausalLM",
        num_local_experts=5,
        num_experts_per_tok=2,
        embedding_multiplier=1.5,
        logits_scaling=0.75,
        residual_multiplier=0.6,
        attention_multiplier=0.3,
    ),
    experts(
        "phimoe",
        "PhimoeForCausalLM",
        num_local_experts=5,
        num_experts_per_tok=2,
        attention_bias=True,
        lm_head_bias=True,
    ),
    experts(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        **LATENT,
        q_lora_rank=None,
        n_routed_experts=5,
        num_experts_per_tok=2,
        n_shared_experts=1,
        first_k_dense_replace=1,
        moe_intermediate_size=18,
    ),
    experts(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        **LATENT,
        q_lora_rank=14,
        n_routed_experts=9,
        n_group=3,
        topk_group=2,
        num_experts_per_tok=3,
        n_shared_experts=1,
        first_k_dense_replace=1,
        moe_intermediate_size=18,
    ),
    experts(
        "gpt_oss",
        "GptOssForCausalLM",
        head_dim=10,
        num_local_experts=5,
        num_experts_per_tok=2,
        sliding_window=4,
    ),
    experts(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        head_dim=12,
        n_routed_experts=5,
        num_experts_per_tok=2,
        n_shared_experts=1,
        first_k_dense_replace=1,
        moe_intermediate_size=18,
        use_qk_norm=True,
        attention_bias=True,
    ),
    experts(
        "llama4",
        "Llama4ForCausalLM",
        head_dim=10,
        intermediate_size_mlp=34,
        num_local_experts=5,
        num_experts_per_tok=1,
        moe_layers=[1],
        no_rope_layers=[1, 0],
        attention_chunk_size=4,
        attn_temperature_tuning=True,
        floor_scale=3,
    ),
)
