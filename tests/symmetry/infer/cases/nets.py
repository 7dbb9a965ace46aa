"""Networks of torchvision, timm and torch itself."""

from collections.abc import Callable

import timm
import torch
from timm.layers import GatedMlp, Mlp
from timm.models.convmixer import ConvMixer
from timm.models.mlp_mixer import MixerBlock, MlpMixer, ResBlock, SpatialGatingBlock
from torch import Tensor, nn
from torchvision.models import DenseNet, MobileNetV3, ResNet, ShuffleNetV2, SwinTransformer, VisionTransformer
from torchvision.models.mobilenetv3 import InvertedResidualConfig
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.vgg import VGG, make_layers

from tests.symmetry.infer.cases.sample import Inputs, Sample, floats, images

THIN = {64: 6, 128: 7, 256: 9, 512: 11}


class ThinResNet(ResNet):
    """Torchvision's residual network at a tenth of its widths, which are no arguments of it."""

    def __init__(self, block: type[BasicBlock | Bottleneck], layers: list[int], **changes: int) -> None:
        super().__init__(block, layers, num_classes=5, **changes)
        self.conv1, self.bn1 = nn.Conv2d(3, THIN[64], 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(THIN[64])
        self.fc = nn.Linear(THIN[512] * block.expansion, 5)

    def _make_layer(
        self,
        block: type[BasicBlock | Bottleneck],
        planes: int,
        blocks: int,
        stride: int = 1,
        dilate: bool = False,
    ) -> nn.Sequential:
        if planes == 64:
            self.inplanes = THIN[64]
        return super()._make_layer(block, THIN[planes], blocks, stride, dilate)


def vgg(batch_norm: bool) -> nn.Module:
    """Torchvision's VGG with narrow layers; its own wide ones are never allocated."""
    features = make_layers([6, "M", 9, 10, "M"], batch_norm)
    with torch.device("meta"):
        model = VGG(features, init_weights=False)
    model.classifier = nn.Sequential(
        nn.Linear(10 * 7 * 7, 13), nn.ReLU(True), nn.Dropout(), nn.Linear(13, 11), nn.ReLU(True), nn.Linear(11, 5)
    )
    return model


def mobilenet() -> nn.Module:
    """Torchvision's MobileNetV3: inverted residuals with and without squeezing."""
    blocks = [
        InvertedResidualConfig(8, 3, 16, 8, use_se=True, activation="RE", stride=1, dilation=1, width_mult=1),
        InvertedResidualConfig(8, 5, 24, 16, use_se=False, activation="HS", stride=2, dilation=1, width_mult=1),
        InvertedResidualConfig(16, 3, 40, 16, use_se=True, activation="HS", stride=1, dilation=1, width_mult=1),
    ]
    return MobileNetV3(blocks, last_channel=20, num_classes=5, dropout=0.0)


def vit() -> nn.Module:
    return VisionTransformer(
        image_size=12, patch_size=4, num_layers=2, num_heads=4, hidden_dim=24, mlp_dim=28, num_classes=5
    )


def swin() -> nn.Module:
    return SwinTransformer(
        patch_size=[3, 3],
        embed_dim=12,
        depths=[2, 1],
        num_heads=[3, 4],
        window_size=[4, 4],
        mlp_ratio=1.5,
        stochastic_depth_prob=0.0,
        num_classes=5,
    )


def densenet() -> nn.Module:
    return DenseNet(growth_rate=5, block_config=(2, 3), num_init_features=8, bn_size=3, num_classes=5)


def shufflenet() -> nn.Module:
    return ShuffleNetV2([2, 1, 1], [8, 12, 20, 28, 36], num_classes=5)


def transformer() -> nn.Module:
    return nn.Transformer(24, 4, 1, 2, dim_feedforward=28, dropout=0.0, batch_first=True)


def sequences(draw: torch.Generator) -> dict[str, Tensor]:
    return floats("src", 7, 24)(draw) | floats("tgt", 5, 24)(draw)


def vision(name: str, build: Callable[[], nn.Module], size: int) -> Sample:
    return Sample(f"torchvision: {name}", build, images(size, name="x"))


def from_timm(name: str, size: int, **changes: object) -> Sample:
    def build() -> nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=5, **changes)

    inputs: Inputs = images(size, name="x")
    return Sample(f"timm: {name}", build, inputs)


def mixer(block: type[nn.Module], feed_forward: type[nn.Module], ratio: float | tuple[float, float]) -> nn.Module:
    """A network of timm that mixes nine places and 24 channels in turn, in the way of `block`."""
    return MlpMixer(
        num_classes=5,
        img_size=12,
        patch_size=4,
        num_blocks=2,
        embed_dim=24,
        mlp_ratio=ratio,
        block_layer=block,
        mlp_layer=feed_forward,
    )


def convmixer() -> nn.Module:
    return ConvMixer(dim=10, depth=2, kernel_size=3, patch_size=4, num_classes=5)


SAMPLES: tuple[Sample, ...] = (
    vision("resnet18", lambda: ThinResNet(BasicBlock, [2, 2, 2, 2]), 40),
    vision("resnet of bottlenecks", lambda: ThinResNet(Bottleneck, [1, 2, 1, 1]), 40),
    vision("resnext", lambda: ThinResNet(Bottleneck, [1, 1, 1, 1], groups=3, width_per_group=64), 40),
    vision("vgg", lambda: vgg(batch_norm=False), 28),
    vision("vgg with batch norm", lambda: vgg(batch_norm=True), 28),
    vision("mobilenet_v3", mobilenet, 20),
    vision("vit", vit, 12),
    vision("swin", swin, 24),
    vision("densenet", densenet, 40),
    vision("shufflenet_v2", shufflenet, 40),
    from_timm("resnet18", 40, channels=(6, 7, 9, 11), stem_width=8),
    from_timm("resnetv2_50", 40, layers=(1, 1), channels=(12, 20), stem_chs=8),
    from_timm("convnext_atto", 32, depths=(1, 2, 1, 1), dims=(6, 8, 10, 12)),
    Sample("timm: mixer", lambda: mixer(MixerBlock, Mlp, (0.8, 1.5)), images(12, name="x")),
    Sample("timm: gmlp", lambda: mixer(SpatialGatingBlock, GatedMlp, 3), images(12, name="x")),
    Sample("timm: resmlp", lambda: mixer(ResBlock, Mlp, 1.5), images(12, name="x")),
    Sample("timm: convmixer", convmixer, images(12, name="x")),
    from_timm("eva02_tiny_patch14_224", 12, img_size=12, patch_size=4, embed_dim=32, depth=2, num_heads=4, mlp_ratio=2),
    from_timm(
        "cait_xxs24_224",
        12,
        img_size=12,
        patch_size=4,
        embed_dim=24,
        depth=2,
        num_heads=4,
        mlp_ratio=3,
        depth_token_only=1,
    ),
    from_timm("xcit_nano_12_p16_224", 32, img_size=32, embed_dim=24, depth=2, num_heads=4, mlp_ratio=3),
    Sample("torch.nn.Transformer", transformer, sequences),
)
