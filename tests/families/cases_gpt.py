"""GPT-2, GPT-NeoX and Pythia, GPT-J, OPT."""

from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
    GPTJConfig,
    GPTJForCausalLM,
    GPTJForSequenceClassification,
    GPTJModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GPTNeoXForSequenceClassification,
    GPTNeoXForTokenClassification,
    GPTNeoXModel,
    OPTConfig,
    OPTForCausalLM,
    OPTForSequenceClassification,
    OPTModel,
)

from tests.families.harness import Case

TOKENS = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL_GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32, "n_inner": 20, **TOKENS}
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 32, **TOKENS}


def gpt2(**changes: object) -> GPT2Config:
    return GPT2Config(**{**SMALL_GPT2, **changes})


def gptj(**changes: object) -> GPTJConfig:
    return GPTJConfig(**{**SMALL_GPT2, "rotary_dim": 4, **changes})


def neox(**changes: object) -> GPTNeoXConfig:
    return GPTNeoXConfig(**{**SIZES, "intermediate_size": 20, "rotary_pct": 0.5, **changes})


def opt(**changes: object) -> OPTConfig:
    return OPTConfig(**{**SIZES, "ffn_dim": 20, **changes})


def fixed(layers: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Parameters of two layers that no space touches."""
    return tuple(f"{layers}.{layer}.{name}" for layer in range(2) for name in names)


GPT2_MODEL = (
    "wte.weight",
    "wpe.weight",
    *fixed(
        "h",
        ("ln_1.weight", "ln_1.bias", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_proj.bias"),
    ),
    "ln_f.weight",
    "ln_f.bias",
)
GPTJ_MODEL = (
    "wte.weight",
    *fixed("h", ("ln_1.weight", "ln_1.bias", "mlp.fc_out.bias")),
    "ln_f.weight",
    "ln_f.bias",
)
NEOX_MODEL = (
    "embed_in.weight",
    *fixed(
        "layers",
        (
            "input_layernorm.weight",
            "input_layernorm.bias",
            "attention.dense.bias",
            "post_attention_layernorm.weight",
            "post_attention_layernorm.bias",
            "mlp.dense_4h_to_h.bias",
        ),
    ),
    "final_layer_norm.weight",
    "final_layer_norm.bias",
)
OPT_MODEL = (
    "decoder.embed_tokens.weight",
    "decoder.embed_positions.weight",
    *fixed(
        "decoder.layers",
        (
            "self_attn_layer_norm.weight",
            "self_attn_layer_norm.bias",
            "self_attn.out_proj.bias",
            "final_layer_norm.weight",
            "final_layer_norm.bias",
            "fc2.bias",
        ),
    ),
    "decoder.final_layer_norm.weight",
    "decoder.final_layer_norm.bias",
)

CASES = [
    Case("gpt2", lambda: GPT2Model(gpt2()), GPT2_MODEL, notes=("output",)),
    Case("gpt2-lm-tied", lambda: GPT2LMHeadModel(gpt2()), (), notes=("untie",)),
    Case("gpt2-lm-untied", lambda: GPT2LMHeadModel(gpt2(tie_word_embeddings=False)), ()),
    Case("gpt2-sequence", lambda: GPT2ForSequenceClassification(gpt2()), ()),
    Case("gpt2-token-relu", lambda: GPT2ForTokenClassification(gpt2(activation_function="relu")), ("classifier.bias",)),
    Case("neox", lambda: GPTNeoXModel(neox()), NEOX_MODEL, notes=("output",)),
    Case("neox-lm", lambda: GPTNeoXForCausalLM(neox()), ()),
    Case("neox-lm-tied", lambda: GPTNeoXForCausalLM(neox(tie_word_embeddings=True)), (), notes=("untie",)),
    Case(
        "neox-lm-sequential-no-attention-bias",
        lambda: GPTNeoXForCausalLM(neox(use_parallel_residual=False, attention_bias=False)),
        (),
    ),
    Case("neox-sequence-fully-rotary", lambda: GPTNeoXForSequenceClassification(neox(rotary_pct=1.0)), ()),
    Case("neox-token", lambda: GPTNeoXForTokenClassification(neox()), ("classifier.bias",)),
    Case("gptj", lambda: GPTJModel(gptj()), GPTJ_MODEL, notes=("output",)),
    Case("gptj-lm", lambda: GPTJForCausalLM(gptj()), ("lm_head.bias",)),
    Case("gptj-sequence", lambda: GPTJForSequenceClassification(gptj()), ()),
    Case("opt", lambda: OPTModel(opt()), OPT_MODEL, notes=("output",)),
    Case("opt-narrow-words", lambda: OPTModel(opt(word_embed_proj_dim=10)), (), notes=("output",)),
    Case("opt-lm-tied", lambda: OPTForCausalLM(opt()), (), notes=("untie",)),
    Case("opt-lm-untied", lambda: OPTForCausalLM(opt(tie_word_embeddings=False)), ()),
    Case(
        "opt-lm-post-norm-narrow-words",
        lambda: OPTForCausalLM(opt(do_layer_norm_before=False, word_embed_proj_dim=10)),
        (),
        notes=("rotations",),
    ),
    Case("opt-lm-narrow-words", lambda: OPTForCausalLM(opt(word_embed_proj_dim=10)), ()),
    Case(
        "opt-lm-narrow-words-untied",
        lambda: OPTForCausalLM(opt(word_embed_proj_dim=10, tie_word_embeddings=False)),
        (),
    ),
    Case(
        "opt-lm-plain-norms-no-bias",
        lambda: OPTForCausalLM(opt(layer_norm_elementwise_affine=False, enable_bias=False)),
        (),
    ),
    Case(
        "opt-lm-no-final-norm-gelu",
        lambda: OPTForCausalLM(
            opt(_remove_final_layer_norm=True, tie_word_embeddings=False, activation_function="gelu")
        ),
        (),
    ),
    Case("opt-sequence", lambda: OPTForSequenceClassification(opt()), ()),
    Case(
        "opt-sequence-no-bias-plain-norms",
        lambda: OPTForSequenceClassification(opt(layer_norm_elementwise_affine=False, enable_bias=False)),
        (),
    ),
    Case(
        "opt-sequence-post-norm",
        lambda: OPTForSequenceClassification(opt(do_layer_norm_before=False)),
        (),
    ),
]
