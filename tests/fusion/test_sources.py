"""Models as they are given to a fusion."""

from typing import Any

import pytest
import torch
from torch import nn

from fusionlab.errors import InputError
from fusionlab.fusion import FusionModule
from fusionlab.fusion.sources import named
from tests.commands.small import vit


def test_wrapped_modules_are_of_one_architecture() -> None:
    models = [vit(0), vit(1)]
    found = FusionModule([torch.compile(models[0]), nn.DataParallel(models[1])], "none")  # type: ignore[list-item]
    assert [found.models[name] for name in ("model 0", "model 1")] == models


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("models/reviews", r"given the path models/reviews; expected the models in one list: FusionModule\(\[a, b\]"),
        (nn.Linear(2, 2), "given one Linear; expected the models in one list"),
        (3, "given one int"),
        (["a", 3], "model 1 of the fusion is of type int; expected a module, or the path"),
        ({"a": None}, "the model 'a' is of type NoneType"),
    ],
)
def test_what_is_no_list_of_models(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        named(given)
