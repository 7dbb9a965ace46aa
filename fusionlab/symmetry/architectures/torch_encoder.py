"""torch.nn.TransformerEncoder: the encoder that home-made models are built from (Vaswani et al., 2017).

Its input and its output are the residual stream, whose basis therefore stays. A module of one's own that holds one as
``self.encoder`` between an embedding and a classifier is described in the same terms, under its package and class::

    @DESCRIBED.of("mypackage.Tagger")
    def tagger(b, model, class_name):
        b.takes("tokens", (12,), vocabulary=model.embedding.num_embeddings)
        residual = b.space("residual", Permutation(model.embedding.embedding_dim), role="residual")
        b.embedding("embedding", writes=residual)
        normed = encoder(b, model.encoder, "encoder.", residual)
        b.linear("classifier", reads=normed, writes=None)

where ``b.stream("residual", width, norm="layer")`` in place of the space admits rotations, if ``norm_first`` is true
and the encoder ends in a norm.
"""

from typing import Any

from torch import nn
from torch.nn import functional

from fusionlab.symmetry.architectures.descriptions import DESCRIBED
from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation

ACTIVATIONS: dict[Any, str] = {functional.relu: "relu", nn.ReLU: "relu", functional.gelu: "gelu", nn.GELU: "gelu"}


@DESCRIBED.of("torch.TransformerEncoder")
def torch_encoder(b: BlueprintBuilder, model: nn.Module, class_name: str) -> None:
    """Describe a bare TransformerEncoder from its attributes (one on the meta device will do)."""
    m: Any = model
    b.takes("src", (5, m.layers[0].self_attn.embed_dim))
    b.leaves_out("residual stream: it is this model's input and output, so its basis is not free")
    encoder(b, m, "", None)


def encoder(b: BlueprintBuilder, m: Any, prefix: str, residual: Axis | None) -> Axis | Normed | None:
    """Describe the layers and the final norm of a TransformerEncoder, wherever it stands in a model.

    Args:
        m: the encoder.
        prefix: its name with a dot, such as ``encoder.``; empty where it is the whole model.
        residual: the stream it reads and writes.

    Returns:
        What the map behind it reads.

    Raises:
        SymmetryError: a layer or a norm of another kind.
    """
    for layer, block in enumerate(m.layers):
        at, attention = f"{prefix}layers.{layer}", block.self_attn
        if type(block) is not nn.TransformerEncoderLayer:
            raise SymmetryError(f"{at!r} is a {type(block).__name__}; expected a TransformerEncoderLayer")
        heads = b.space(f"{at}.heads", Permutation(attention.num_heads), role="heads", layer=layer)
        width, index = Invertible(attention.head_dim), (heads.space,)
        qk = b.space(f"{at}.qk", width, role="attention.qk", layer=layer, index=index)
        vo = b.space(f"{at}.vo", width, role="attention.vo", layer=layer, index=index)
        ffn = b.hidden_units(f"{at}.ffn", block.linear1.out_features, layer, _activation(at, block))
        bias = block.linear1.bias is not None

        # In front of a sublayer a norm is what the sublayer reads; behind it, its output is the stream itself.
        first, second = (_norm(b, f"{at}.{name}", getattr(block, name), residual) for name in ("norm1", "norm2"))
        if not block.norm_first:
            first = second = residual
        stream = first.axis if isinstance(first, Normed) else first
        fused = Concat(b.per(heads, qk), b.per(heads, qk.dual()), b.per(heads, vo))
        projection = f"{at}.self_attn.in_proj_"
        b.reads(f"{projection}weight", 1, f"{projection}bias" if bias else None, first)
        b.parameter(f"{projection}weight", fused, stream and stream.dual())
        if bias:
            b.parameter(f"{projection}bias", fused)
        b.linear(f"{at}.self_attn.out_proj", reads=b.per(heads, vo), writes=residual, bias=bias)
        b.linear(f"{at}.linear1", reads=second, writes=ffn, bias=bias)
        b.linear(f"{at}.linear2", reads=ffn, writes=residual, bias=bias)
    return residual if m.norm is None else _norm(b, f"{prefix}norm", m.norm, residual)


def _norm(b: BlueprintBuilder, name: str, norm: nn.Module, residual: Axis | None) -> Axis | Normed | None:
    """A LayerNorm, with or without gain and bias, and what the map behind it reads."""
    if type(norm) is not nn.LayerNorm:
        raise SymmetryError(f"{name!r} is a {type(norm).__name__}; expected a LayerNorm")
    return b.norm(name, residual, bias=norm.bias is not None) if norm.elementwise_affine else residual


def _activation(name: str, block: Any) -> str:
    """The name of a layer's activation."""
    known = ACTIVATIONS.get(block.activation) or ACTIVATIONS.get(type(block.activation))
    if known is None:
        raise SymmetryError(f"the activation of {name!r} is not described; expected relu or gelu")
    return known
