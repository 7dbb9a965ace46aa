"""OLMo 2: a relative of Llama with norms after the branches and over whole queries and keys (OLMo Team, 2025).

Branches read the stream as it is. The gains of the query and key norms differ from head to head and move with them.
"""

from typing import Any

from fusionlab.symmetry.builder import BlueprintBuilder
from tests.symmetry.written.llama import attention_axes, begin, end, head_width, rotary_gains
from tests.symmetry.written.registry import architecture

ENDINGS = ("Model", "ForCausalLM", "ForSequenceClassification")


@architecture("olmo2")
def olmo2(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe an OLMo 2 model."""
    frame = begin(b, config, class_name, "Olmo2", ENDINGS, branch_norms=True)
    residual, bias = frame.residual, config.attention_bias

    for layer in range(config.num_hidden_layers):
        at = f"{frame.prefix}layers.{layer}"
        attention = attention_axes(b, config, layer, rotary=None)
        gains = rotary_gains(b, layer, head_width(config), attention.index)
        gate, up = b.gated_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)

        b.linear(f"{at}.self_attn.q_proj", reads=residual, writes=attention.query, bias=bias)
        b.linear(f"{at}.self_attn.k_proj", reads=residual, writes=attention.key, bias=bias)
        b.linear(f"{at}.self_attn.v_proj", reads=residual, writes=attention.value, bias=bias)
        b.linear(f"{at}.self_attn.o_proj", reads=attention.mixed, writes=residual, bias=bias)
        b.parameter(f"{at}.self_attn.q_norm.weight", attention.by_query(gains))
        b.parameter(f"{at}.self_attn.k_norm.weight", attention.by_group(gains.dual()))
        b.norm(f"{at}.post_attention_layernorm", residual, bias=False)
        b.linear(f"{at}.mlp.gate_proj", reads=residual, writes=gate, bias=False)
        b.linear(f"{at}.mlp.up_proj", reads=residual, writes=up, bias=False)
        b.linear(f"{at}.mlp.down_proj", reads=up, writes=residual, bias=False)
        b.norm(f"{at}.post_feedforward_layernorm", residual, bias=False)

    end(b, config, frame)
