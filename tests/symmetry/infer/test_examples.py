"""Inputs are guessed from a config where it says them, and from what is usual where it does not."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor, nn

from fusionlab.symmetry.infer.examples import guessed_inputs
from fusionlab.symmetry.infer.models import inferred
from fusionlab.symmetry.inputs import Input
from tests.parts import one_in
from tests.symmetry.infer.cases import BY_NAME
from tests.symmetry.models import generator


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


@pytest.mark.parametrize("name", one_in(2, ["longformer", "led"]))
def test_tokens_that_attend_to_all_others_are_guessed(name: str) -> None:
    """Their projections are read as they are with an example, and probes need no such tokens."""
    sample = BY_NAME[name]
    model = sample.build()
    found, shown = inferred(model), inferred(model, sample.inputs(generator(0)))
    assert {space.name for space in found.spaces.values()} == {space.name for space in shown.spaces.values()}
    assert not [one for one in found.untouched() if one.endswith("query_global.weight")]
    assert {one.name for one in found.inputs} <= {"input_ids", "decoder_input_ids"}
