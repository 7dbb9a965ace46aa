"""Parts of inputs that a pass over data looks at."""

from collections.abc import Iterable, Iterator, Mapping

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from fusionlab.statistics.loading import ordered_loader, part_of


def pixels(batches: Iterable[Mapping[str, Tensor]]) -> Tensor:
    return torch.cat([batch["pixel_values"] for batch in batches])


def stacked(numbers: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.stack(numbers)}


class Once(IterableDataset[dict[str, Tensor]]):
    """Examples that are there once, as of a socket."""

    def __init__(self, count: int) -> None:
        self._left = iter([{"x": torch.tensor([float(number)])} for number in range(count)])

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return self._left


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_first_batch_of_what_is_there_once_is_not_lost(count: int) -> None:
    loader, first = ordered_loader(DataLoader(Once(count), batch_size=2))
    assert first["x"][0] == 0
    assert [float(x) for batch in loader for x in batch["x"]] == list(range(count))


def test_a_part_is_drawn_of_what_is_shared() -> None:
    """At random of a data set and of a list of batches, by the seed; of a stream what comes first; all where few."""
    images = DataLoader(torch.arange(200.0), batch_size=32, collate_fn=stacked, shuffle=True)
    part = pixels(part_of(images, 50))
    assert len(set(part.tolist())) == 50
    assert torch.equal(part, pixels(part_of(images, 50)))
    assert not torch.equal(part, pixels(part_of(images, 50, seed=1)))
    assert not torch.equal(part, torch.arange(50.0))
    assert torch.equal(pixels(part_of(images, 10**6)), torch.arange(200.0))

    numbered = [{"pixel_values": torch.full((4, 1), float(place))} for place in range(20)]
    listed = pixels(part_of(numbered, 10))
    assert len(listed) == 12
    assert len(set(listed.flatten().tolist())) == 3
    assert set(listed.flatten().tolist()) != {0.0, 1.0, 2.0}
    assert len(pixels(part_of(numbered, 1000))) == 80

    chosen = DataLoader(torch.arange(20.0), batch_size=4, sampler=[3, 5, 7], collate_fn=stacked)
    assert set(pixels(part_of(chosen, 10)).tolist()) == {3.0, 5.0, 7.0}
    in_batches = DataLoader(numbered, batch_size=None)
    assert pixels(part_of(in_batches, 10)).flatten().tolist() == [0.0] * 4 + [1.0] * 4 + [2.0] * 4
