"""What fields of configs count, by the names that model classes give them."""

import pytest

from fusionlab.symmetry.infer.meanings import Meaning, meaning


@pytest.mark.parametrize(
    ("named", "counts"),
    [
        ("intermediate_size moe_intermediate_size d_ff dim_ff ffn_dim n_inner encoder_ffn_dim", Meaning.INNER),
        ("shared_expert_intermediate_size shared_experts_intermediate_size share_expert_dim", Meaning.INNER),
        ("n_shared_experts num_kv_shared_layers conv_kernel mlp_ratio merge_size", Meaning.KEPT),
        ("sliding_window sliding_window_size attention_window_size window_size", Meaning.WINDOW),
        ("num_key_value_heads n_head_kv num_query_groups", Meaning.KEY_VALUE_HEADS),
        ("num_attention_heads n_head encoder_attention_heads index_n_heads", Meaning.HEADS),
        ("head_dim qk_rope_head_dim d_kv index_head_dim", Meaning.HEAD_WIDTH),
        ("hidden_size d_model n_embd embed_dim projection_dim hidden_sizes", Meaning.WIDTH),
        ("num_local_experts n_routed_experts moe_num_experts", Meaning.EXPERTS),
        ("num_experts_per_tok moe_topk", Meaning.CHOSEN),
        ("kv_lora_rank q_lora_rank", Meaning.RANK),
        ("eos_token_id pad_token_id image_token_index", Meaning.TOKEN),
        ("num_hidden_layers n_layer depths", Meaning.LAYERS),
    ],
)
def test_names_say_what_is_counted(named: str, counts: Meaning) -> None:
    assert {name: meaning(name) for name in named.split()} == dict.fromkeys(named.split(), counts)
