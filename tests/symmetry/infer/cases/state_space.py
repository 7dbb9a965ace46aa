"""State spaces and other recurrences, alone or beside attention."""

from tests.symmetry.infer.cases.sample import VOCABULARY, Sample, pretrained, tokens

TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ATTENTION = {
    "intermediate_size": 28,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 19,
}


def recurrent(name: str, head: str, **config: object) -> Sample:
    return pretrained(name, head, tokens(), **(TEXT | config))


SAMPLES: tuple[Sample, ...] = (
    recurrent("mamba", "MambaForCausalLM", state_size=5, time_step_rank=3),
    recurrent("falcon_mamba", "FalconMambaForCausalLM", state_size=5, time_step_rank=3),
    recurrent("mamba2", "Mamba2ForCausalLM", num_heads=6, head_dim=8, n_groups=3, state_size=5, chunk_size=4),
    recurrent(
        "jamba",
        "JambaForCausalLM",
        **ATTENTION,
        num_experts=5,
        num_experts_per_tok=2,
        expert_layer_period=2,
        expert_layer_offset=1,
        attn_layer_period=2,
        attn_layer_offset=1,
        use_mamba_kernels=False,
        mamba_d_state=5,
        mamba_dt_rank=3,
    ),
    recurrent(
        "bamba",
        "BambaForCausalLM",
        **ATTENTION,
        attn_layer_indices=[1],
        mamba_n_heads=6,
        mamba_d_head=8,
        mamba_n_groups=3,
        mamba_d_state=5,
        mamba_chunk_size=4,
    ),
    recurrent("rwkv", "RwkvForCausalLM", attention_hidden_size=20, intermediate_size=28),
    recurrent(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        **(ATTENTION | {"num_key_value_heads": 1}),
        lru_width=20,
        attention_window_size=4,
        block_types=["recurrent", "attention"],
    ),
    recurrent(
        "lfm2",
        "Lfm2ForCausalLM",
        **ATTENTION,
        layer_types=["conv", "full_attention"],
        block_auto_adjust_ff_dim=False,
        conv_L_cache=3,
    ),
    recurrent(
        "falcon_h1",
        "FalconH1ForCausalLM",
        **ATTENTION,
        mamba_d_ssm=40,
        mamba_n_heads=5,
        mamba_d_head=8,
        mamba_n_groups=1,
        mamba_d_state=6,
        mamba_chunk_size=4,
    ),
)
