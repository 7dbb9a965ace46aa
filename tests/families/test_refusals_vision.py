"""Vision models that are not described, or whose functions have other symmetries, are refused with a reason."""

from functools import partial

import pytest
import timm
from timm.layers import GatedMlp, PatchEmbed, SimpleNorm
from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock
from torch import nn
from transformers import (
    DeiTForImageClassificationWithTeacher,
    PreTrainedConfig,
    PreTrainedModel,
    SwinForImageClassification,
    ViTForImageClassification,
    ViTModel,
)

from fusionlab.symmetry import SymmetryError, blueprint, blueprint_from_config
from tests.families.cases_vision import beit_config, dinov2_config, registers_config, swin_config
from tests.families.cases_vit import TIMM, deit_config, vit_config


class OtherEmbedding(PatchEmbed):
    """Another embedding of patches, as far as a description can know."""


@pytest.mark.parametrize(
    ("config", "class_name", "known"),
    [
        (vit_config(), "ViTForDepthEstimation", "ViTModel"),
        (vit_config(), "ViTForImageClassificationWithTeacher", "ViTModel"),
        (beit_config(), "BeitForSemanticSegmentation", "BeitModel"),
        (beit_config(), "BeitBackbone", "BeitModel"),
        (dinov2_config(), "Dinov2Backbone", "Dinov2Model"),
        (dinov2_config(), "Dinov2WithRegistersModel", "Dinov2Model"),
        (registers_config(), "Dinov2WithRegistersBackbone", "Dinov2WithRegistersModel"),
        (swin_config(), "SwinBackbone", "SwinModel"),
    ],
)
def test_other_classes_are_refused(config: PreTrainedConfig, class_name: str, known: str) -> None:
    with pytest.raises(SymmetryError, match=f"model class {class_name}: fusionlab knows {known}, "):
        blueprint_from_config(config, class_name)


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (ViTForImageClassification, vit_config(num_labels=0)),
        (DeiTForImageClassificationWithTeacher, deit_config(num_labels=0)),
        (SwinForImageClassification, swin_config(num_labels=0)),
    ],
)
def test_classifiers_without_labels_are_refused(cls: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    with pytest.raises(SymmetryError, match="without labels is not described; expected num_labels > 0"):
        blueprint(cls(config))


def test_an_activation_with_parameters_is_refused() -> None:
    with pytest.raises(SymmetryError, match=r"has the parameter 'layers.0.mlp.activation_fn.weight'"):
        blueprint(ViTModel(vit_config(hidden_act="prelu")))


def test_a_model_without_the_pooler_of_its_class_is_refused() -> None:
    with pytest.raises(SymmetryError, match=r"lacks the parameter 'pooler.dense.weight'"):
        blueprint(ViTModel(vit_config(), add_pooling_layer=False))


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
