"""The inputs of a descent where not all are read: those of data that lie class by class are of every class."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.learning.collecting import collect
from tests.symmetry.models import random_model

COUNT, SIZE = 60, 4
MANY = 10**6


def models() -> list[nn.Module]:
    return [random_model("vit-classifier", seed).float().eval() for seed in range(2)]


def by_class() -> list[dict[str, Tensor]]:
    """Images of one value each, which counts them."""
    config = random_model("vit-classifier").config
    shape = (config.num_channels, config.image_size, config.image_size)
    return [{"pixel_values": torch.full(shape, float(place)), "labels": torch.tensor(place)} for place in range(COUNT)]


def places(pool: Any) -> list[int]:
    return [int(image[0, 0, 0]) for group in pool.groups for image in group.inputs["pixel_values"]]


def test_a_part_is_of_all_of_the_data() -> None:
    """As few as are of use, or as fit into memory; with targets that are those of these examples."""
    ends, data = models(), by_class()
    each = data[0]["pixel_values"].nbytes
    for limits in ({"examples": 12}, {"examples": MANY, "memory": 12 * each - 1}):
        pool = collect(ends, DataLoader(data, batch_size=SIZE), None, with_targets=False, **limits)
        found = places(pool)
        assert len(found) == 12
        assert min(found) < 15
        assert max(found) >= 45
    pool = collect(ends, DataLoader(data, batch_size=SIZE), None, 12, True)
    assert places(pool) == list(range(0, 60, 15)) + list(range(5, 60, 15)) + list(range(10, 60, 15))
    (group,) = pool.groups
    with torch.no_grad():
        answers = [end(group.inputs["pixel_values"]).logits.softmax(-1) for end in ends]
    torch.testing.assert_close(group.targets.values, sum(answers) / 2, rtol=0, atol=1e-5)


def test_what_is_read_as_a_whole_and_other_batches_stay_in_their_order() -> None:
    ends, data = models(), by_class()
    assert places(collect(ends, DataLoader(data, batch_size=SIZE), None, MANY, False)) == list(range(COUNT))
    listed = list(DataLoader(data, batch_size=SIZE))
    assert places(collect(ends, listed, None, 12, False)) == list(range(12))
    assert places(collect(ends, iter(listed), None, 12, False)) == list(range(12))


@pytest.mark.parametrize(("data", "message"), [([], "holds no batch"), ([[1]], "holds a list"), ([{"x": 1}], "a dict")])
def test_what_is_no_batch_is_refused(data: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        collect(models(), data, None, MANY, True)
