"""torch.nn.TransformerEncoder, with torch's fast path (even numbers of heads, biases) and without."""

from torch import nn

from tests.families.harness import Case


def encoder(heads: int = 4, final_norm: bool = False, batch_first: bool = True, **changes: object) -> nn.Module:
    layer = nn.TransformerEncoderLayer(24, heads, dim_feedforward=20, batch_first=batch_first, **changes)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(24) if final_norm else None, enable_nested_tensor=False)


def untouched(bias: bool = True, final_norm: bool = False) -> tuple[str, ...]:
    names = ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "self_attn.out_proj.bias", "linear2.bias")
    chosen = [name for name in names if bias or name.endswith("weight")]
    of_layers = [f"layers.{layer}.{name}" for layer in range(2) for name in chosen]
    return (*of_layers, *(("norm.weight", "norm.bias") if final_norm else ()))


CASES = [
    Case("torch-post-norm-relu", encoder, untouched(), stored=False, notes=("output",)),
    Case(
        "torch-pre-norm-gelu",
        lambda: encoder(final_norm=True, norm_first=True, activation="gelu"),
        untouched(final_norm=True),
        stored=False,
    ),
    Case(
        "torch-pre-norm-no-bias",
        lambda: encoder(norm_first=True, bias=False, activation=nn.ReLU()),
        untouched(bias=False),
        stored=False,
    ),
    Case(
        "torch-odd-heads-tokens-first",
        lambda: encoder(heads=3, batch_first=False, activation=nn.GELU()),
        untouched(),
        stored=False,
    ),
]
