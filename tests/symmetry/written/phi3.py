"""Phi-3: a relative of Llama with fused projections (Abdin et al., 2024).

Positions may turn only the first coordinates of each head; the others are free.
"""

from typing import Any

from fusionlab.symmetry.axes import Concat
from fusionlab.symmetry.builder import BlueprintBuilder
from tests.symmetry.written.llama import attention_axes, begin, end, head_width
from tests.symmetry.written.registry import architecture


@architecture("phi3")
def phi3(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a Phi-3 model."""
    frame = begin(b, config, class_name, "Phi3")
    residual = frame.residual
    rotary = int(head_width(config) * config.rope_parameters.get("partial_rotary_factor", 1.0))

    for layer in range(config.num_hidden_layers):
        at = f"{frame.prefix}layers.{layer}"
        attention = attention_axes(b, config, layer, rotary)
        gate, up = b.gated_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)

        normed = b.norm(f"{at}.input_layernorm", residual, bias=False)
        fused = Concat(attention.query, attention.key, attention.value)
        b.linear(f"{at}.self_attn.qkv_proj", reads=normed, writes=fused, bias=False)
        b.linear(f"{at}.self_attn.o_proj", reads=attention.mixed, writes=residual, bias=False)
        normed = b.norm(f"{at}.post_attention_layernorm", residual, bias=False)
        b.linear(f"{at}.mlp.gate_up_proj", reads=normed, writes=Concat(gate, up), bias=False)
        b.linear(f"{at}.mlp.down_proj", reads=up, writes=residual, bias=False)

    end(b, config, frame)
