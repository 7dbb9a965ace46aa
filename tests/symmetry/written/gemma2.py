"""Gemma 2: a relative of Llama with a norm before and after each branch (Gemma Team, 2024).

Soft-capping acts on scores and logits, which no change of basis touches. Norms store their gain as ``1 + w``; the norm
after each branch leaves permutations of the stream only, which move ``w`` as they move the gain.
"""

from typing import Any

from fusionlab.symmetry.builder import BlueprintBuilder
from tests.symmetry.written.llama import attention_axes, begin, end, head_width
from tests.symmetry.written.registry import architecture


@architecture("gemma2")
def gemma2(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a Gemma 2 model."""
    frame = begin(b, config, class_name, "Gemma2", branch_norms=True)
    residual, bias = frame.residual, config.attention_bias

    for layer in range(config.num_hidden_layers):
        at = f"{frame.prefix}layers.{layer}"
        attention = attention_axes(b, config, layer, rotary=head_width(config))
        gate, up = b.gated_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_activation)

        normed = b.norm(f"{at}.input_layernorm", residual, bias=False)
        b.linear(f"{at}.self_attn.q_proj", reads=normed, writes=attention.query, bias=bias)
        b.linear(f"{at}.self_attn.k_proj", reads=normed, writes=attention.key, bias=bias)
        b.linear(f"{at}.self_attn.v_proj", reads=normed, writes=attention.value, bias=bias)
        b.linear(f"{at}.self_attn.o_proj", reads=attention.mixed, writes=residual, bias=bias)
        b.norm(f"{at}.post_attention_layernorm", residual, bias=False)
        normed = b.norm(f"{at}.pre_feedforward_layernorm", residual, bias=False)
        b.linear(f"{at}.mlp.gate_proj", reads=normed, writes=gate, bias=False)
        b.linear(f"{at}.mlp.up_proj", reads=normed, writes=up, bias=False)
        b.linear(f"{at}.mlp.down_proj", reads=up, writes=residual, bias=False)
        b.norm(f"{at}.post_feedforward_layernorm", residual, bias=False)

    end(b, config, frame)
