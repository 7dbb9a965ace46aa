"""Parts of data that stand for all of it: examples from everywhere in each batch, whatever order they lie in."""

import itertools

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from fusionlab.spreading import reads_in_order, spread, spread_loader


class Stream(IterableDataset):  # type: ignore[type-arg]
    """Numbers that come in an order of their own."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(range(7))


def loader(count: int, size: int, **how: object) -> DataLoader[dict[str, torch.Tensor]]:
    return DataLoader([{"x": torch.tensor(place)} for place in range(count)], batch_size=size, **how)  # type: ignore[arg-type]


def rows(batches: object) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]  # type: ignore[attr-defined]


def test_only_loaders_that_read_a_data_set_in_its_order() -> None:
    assert reads_in_order(loader(5, 2))
    assert not reads_in_order(loader(5, 2, shuffle=True))
    assert not reads_in_order(DataLoader(Stream(), batch_size=2))
    assert not reads_in_order(DataLoader([torch.zeros(2)], batch_size=None))
    assert not reads_in_order([{"x": torch.zeros(2)}])


@pytest.mark.parametrize(("count", "size", "most"), [(100, 8, 64), (100, 8, 63), (100, 8, 1000), (7, 8, 3), (9, 1, 4)])
def test_examples_lie_evenly_in_all_of_the_data(count: int, size: int, most: int) -> None:
    """As many as asked for, none twice, gaps alike; and each full batch reaches over nearly all of them."""
    found = rows(spread_loader(loader(count, size), most))
    taken = sorted(itertools.chain.from_iterable(found))
    assert len(taken) == len(set(taken)) == min(count, most)
    gaps = {after - before for before, after in itertools.pairwise(taken)}
    assert max(gaps) - min(gaps) <= 1
    # Of a batch, neighbours are no more than this far apart.
    step = -(-count // size) + max(gaps)
    for batch in (batch for batch in found if len(batch) == size):
        inside = sorted(batch)
        assert all(after - before <= step for before, after in itertools.pairwise(inside))
        assert inside[0] < step
        assert inside[-1] >= count - step


def test_of_anything_else_the_first_batches() -> None:
    listed = [{"x": torch.tensor([place])} for place in range(5)]
    assert spread(listed, 2) == listed[:2]
    assert spread(iter(listed), 9) == listed
    mixed = [loader(50, 5, shuffle=True, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    assert rows(spread(mixed[0], 3)) == rows(mixed[1])[:3]
    assert len(spread(loader(50, 5), 3)) == 3
    assert spread(loader(0, 5), 3) == []
