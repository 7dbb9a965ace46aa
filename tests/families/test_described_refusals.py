"""Models of described families whose functions have other symmetries are refused with a reason."""

from functools import partial

import pytest
import timm
from timm.layers import GatedMlp, PatchEmbed, SimpleNorm
from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock
from torch import nn

from fusionlab.symmetry import SymmetryError, blueprint
from tests.families.cases_vit import TIMM


class OtherEmbedding(PatchEmbed):
    """Another embedding of patches, as far as a description can know."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"block_fn": ParallelScalingBlock}, "block ParallelScalingBlock"),
        ({"block_fn": ResPostBlock}, "block ResPostBlock"),
        ({"attn_layer": "diff"}, "attention DiffAttention"),
        ({"mlp_layer": GatedMlp}, "feed-forward layer GatedMlp"),
        ({"embed_layer": OtherEmbedding}, "embedding OtherEmbedding"),
        ({"global_pool": "prr"}, "pooling AttentionPoolPrr"),
        ({"norm_layer": SimpleNorm}, "norm SimpleNorm"),
        ({"norm_layer": partial(nn.LayerNorm, elementwise_affine=False)}, "norms without gains"),
    ],
)
def test_timm_variants_with_other_symmetries_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(SymmetryError, match=told):
        blueprint(timm.create_model("vit_tiny_patch16_224", **(TIMM | changes)))


def test_timm_distilled_model_with_an_idle_norm_is_refused() -> None:
    with pytest.raises(SymmetryError, match="never uses its fc_norm"):
        blueprint(timm.create_model("deit_tiny_distilled_patch16_224", fc_norm=True, **TIMM))
