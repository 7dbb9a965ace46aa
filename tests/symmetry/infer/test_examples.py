"""Inputs are guessed from a config where it says them, and from what is usual where it does not."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor, nn

from fusionlab.symmetry.infer.examples import guessed_inputs
from fusionlab.symmetry.inputs import Input


class Pictures(nn.Module):
    """Looks at pictures, as its config says them."""

    main_input_name = "pixel_values"

    def __init__(self, **said: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(**said)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return pixel_values


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        ({"image_size": 8}, (3, 8, 8)),
        ({"image_size": (8, 6), "num_channels": 1}, (1, 8, 6)),
        ({"vision_config": SimpleNamespace(image_size=[4, 6])}, (3, 4, 6)),
        ({}, (3, 64, 64)),
    ],
)
def test_pictures_are_of_the_size_and_channels_that_a_config_says(
    said: dict[str, Any], shape: tuple[int, int, int]
) -> None:
    assert guessed_inputs(Pictures(**said)) == (Input("pixel_values", shape),)
