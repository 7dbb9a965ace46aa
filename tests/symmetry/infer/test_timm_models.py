"""timm's models are inferred from images of the size that they were made for, without an example."""

import copy

import pytest
import timm
import torch
from torch import nn

from fusionlab.symmetry import Alignment, SymmetryError, blueprint
from fusionlab.symmetry.infer import timm_models
from fusionlab.symmetry.infer.keys import key_of
from tests.symmetry.models import generator


@pytest.mark.parametrize(
    ("name", "changes", "size"),
    [
        ("test_resnet", {}, (3, 160, 160)),
        ("test_byobnet", {"in_chans": 1}, (1, 160, 160)),
        ("xcit_nano_12_p16_224", {"img_size": 32, "embed_dim": 24, "depth": 1, "num_heads": 4}, (3, 32, 32)),
    ],
)
def test_a_random_twin_computes_the_same(name: str, changes: dict[str, int], size: tuple[int, int, int]) -> None:
    """On images of the real size, though a net that takes any was traced with smaller ones."""
    model = timm.create_model(name, pretrained=False, num_classes=2, **changes).eval().double()
    assert timm_models.image_size(model) == size
    found = blueprint(copy.deepcopy(model).float())
    assert found.spaces
    assert [one.shape for one in found.inputs] == [size]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator(0), dtype=torch.float64))
        images = torch.randn(2, *size, generator=generator(1), dtype=torch.float64)
        before, after = model(images), Alignment.random(found, generator(2)).apply(model)(images)
    torch.testing.assert_close(after, before, rtol=1e-8, atol=1e-8)


def test_heads_that_no_shape_tells_are_told_apart() -> None:
    """Of one class and of the same shapes."""
    sizes = {"img_size": 12, "patch_size": 4, "embed_dim": 32, "depth": 1, "num_classes": 2}
    two, four, again = (timm.create_model("eva02_tiny_patch14_224", num_heads=heads, **sizes) for heads in (2, 4, 4))
    assert [x.shape for x in four.state_dict().values()] == [x.shape for x in two.state_dict().values()]
    assert key_of(four) == key_of(again.eval())
    assert key_of(two) != key_of(four)


def test_other_modules_have_no_images() -> None:
    """Whatever they call their attributes."""
    net = nn.Sequential(nn.Conv2d(1, 2, 1))
    for told in (None, {}, {"input_size": 3}, {"input_size": (3, 8)}, "x"):
        net.pretrained_cfg = told  # type: ignore[assignment]
        assert timm_models.image_size(net) is None
        assert list(timm_models.images(net)) == []
    with pytest.raises(SymmetryError, match="nothing is known of the inputs of a Sequential"):
        blueprint(net)
