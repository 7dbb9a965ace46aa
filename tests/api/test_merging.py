"""Merging by the Python call."""

from collections.abc import Iterator

from torch import Tensor

import fusionlab
from tests.api.models import batches
from tests.commands.small import vit


def test_merge_is_the_weighted_mean() -> None:
    """Of every parameter, weights in the order of the models."""
    a, b = vit(0), vit(1)
    merged = fusionlab.merge([a, b], weights=[1, 3])
    for mean, left, right in zip(merged.parameters(), a.parameters(), b.parameters(), strict=True):
        assert mean.double().allclose(0.25 * left.double() + 0.75 * right.double(), atol=1e-6)


def test_a_merge_is_scored_on_shared_data_once() -> None:
    """The soup of two models scores both and their mean: three passes over the data, not three for each model."""

    class Counted(list[dict[str, Tensor]]):
        seen = 0

        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            for batch in super().__iter__():
                self.seen += 1
                yield batch

    data = Counted(batches((4,) * 10))
    fusionlab.merge([vit(0), vit(1)], "soup", data=data)
    assert 30 <= data.seen < 40, "what the data are is found out by looking at the first batch"
