"""What lies between two models, by the Python call."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fusionlab
from fusionlab import InputError
from fusionlab.forward import logits
from tests.api.models import batches
from tests.commands.small import bert, vit


@pytest.mark.parametrize("points", [3, 11])
def test_barrier_by_hand(points: int) -> None:
    """Loss and accuracy of the interpolated models over all samples of uneven batches; the rise above the chord."""
    a, b = vit(0), vit(1)
    curve = fusionlab.barrier(a, b, batches(), points)
    pixels, labels = (torch.cat([batch[name] for batch in batches()]) for name in ("pixel_values", "labels"))
    losses = []
    for index, (position, loss, accuracy) in enumerate(zip(curve.positions, curve.loss, curve.score, strict=True)):
        assert position == pytest.approx(index / (points - 1))
        point = vit(5)
        with torch.no_grad():
            for parameter, start, end in zip(point.parameters(), a.parameters(), b.parameters(), strict=True):
                parameter.copy_((1 - position) * start + position * end)
            found = logits(point, {"pixel_values": pixels})
        losses.append(float(functional.cross_entropy(found, labels)))
        assert loss == pytest.approx(losses[-1], rel=1e-4)
        assert accuracy == pytest.approx(float((found.argmax(-1) == labels).float().mean()))
    rises = [loss - ((1 - t) * losses[0] + t * losses[-1]) for loss, t in zip(losses, curve.positions, strict=True)]
    assert curve.barrier == pytest.approx(max(rises), abs=1e-4)


def test_barrier_refuses_what_it_cannot_measure() -> None:
    """An iterator would be empty at the second point; no batch, no point between or other models are no line."""
    a, b = vit(0), vit(1)

    def once() -> Iterator[dict[str, Tensor]]:
        yield from batches()

    for data, points, other, message in (
        (once(), 3, b, "gone through only once"),
        ([], 3, b, "data holds no batch"),
        (batches(), 2, b, "points is 2; expected at least 3"),
        (batches(), 2**63, b, "points is 9223372036854775808; expected at most 10,000"),
        (batches(), 3, bert(), "expected end models of one architecture"),
        (batches(classes=30), 3, b, "10 classes; expected labels from 0 to 9"),
    ):
        with pytest.raises(InputError, match=message):
            fusionlab.barrier(a, other, data, points)
