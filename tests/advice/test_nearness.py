"""Units nearest to themselves: their count for unrelated tensors, and what is concluded from it."""

import math

import pytest
import torch
from scipy.stats import poisson
from torch import Tensor

from fusionlab.advice.nearness import LEAST, LEVEL, UNITS, Nearness, nearness, spread, tail, worst_axis


def brute(first: Tensor, second: Tensor) -> int:
    """The count by definition, in loops."""
    a, b = (matrix - matrix.mean(0) for matrix in (first, second))
    own = 0
    for index, row in enumerate(a):
        cosines = [float(row @ other / (row.norm() * other.norm())) for other in b]
        own += cosines.index(max(cosines)) == index
    return own


@pytest.mark.parametrize("noise", [0.0, 1.0, 4.0, 100.0])
def test_count_is_that_of_the_definition(noise: float) -> None:
    first = torch.randn(40, 12, dtype=torch.float64)
    second = first + noise * torch.randn_like(first)
    found = nearness(first, second)
    assert (found.own, found.units) == (brute(first, second), 40)


@pytest.mark.parametrize("types", [(torch.float64, torch.float32), (torch.bfloat16, torch.float64)])
def test_types_may_differ(types: tuple[torch.dtype, torch.dtype]) -> None:
    matrix = torch.randn(20, 12, generator=torch.Generator().manual_seed(0))
    assert nearness(*(matrix.to(dtype) for dtype in types)).own == 20


def test_tail_and_threshold() -> None:
    """Those of the Poisson distribution, and the first that is rare enough."""
    for least in range(12):
        assert tail(least) == pytest.approx(poisson.sf(least - 1, 1), abs=1e-12)
    assert 4 * tail(LEAST) <= LEVEL < 4 * tail(LEAST - 1)


@pytest.mark.parametrize("units", [8, 60])
def test_renumbered_units_have_one_nearest_to_itself_on_average(units: int) -> None:
    """Whatever the weights: alike but for their order, few directions, one that all share, long ones."""
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(units, 20, generator=draw)
    cases = {
        "the same": (base, base),
        "few directions": (base[:, :3] @ base[:3], base[:, :3] @ base[3:6]),
        "one that all share": (base + 50, base - 50),
        "long units": (base * torch.arange(1, units + 1)[:, None], base * torch.arange(1, units + 1)[:, None]),
    }
    for name, (first, second) in cases.items():
        counts = torch.tensor([nearness(first, second[torch.randperm(units, generator=draw)]).own for _ in range(400)])
        # The mean of 400 counts of variance 1 at most: five standard errors.
        assert abs(float(counts.mean()) - 1) < 5 / math.sqrt(400), name
        assert float(counts.var()) < 1.5, name
        assert int((counts >= LEAST).sum()) <= 2, name


def test_what_all_units_share_or_lack_tells_nothing() -> None:
    """Constant rows, rows of zeros, one direction up to sign."""
    assert nearness(torch.ones(30, 5), torch.ones(30, 5)).units == 0
    assert nearness(torch.zeros(30, 5), torch.randn(30, 5)).relation is None
    line = torch.randn(30, 1) * torch.randn(1, 5)
    assert nearness(line, line).own < LEAST


def test_conclusions() -> None:
    assert Nearness(LEAST - 1, LEAST - 1).relation is None
    assert Nearness(LEAST - 0.5, 100).relation == "unrelated"
    assert Nearness(LEAST, 100).relation == "related"
    assert Nearness(50, 100).relation == "own"


def test_the_axis_that_shares_least_tells() -> None:
    """Rows that all models number alike say nothing where columns are each model's own."""
    table = torch.randn(30, 30)
    found = worst_axis(table, table[:, torch.randperm(30)])
    assert found is not None
    assert found.relation == "unrelated"
    assert worst_axis(torch.randn(3, 4), torch.randn(3, 4)) is None


def test_units_of_few_features_tell_nothing() -> None:
    """The columns of two rows that hardly moved, as fine-tunes of one base have for kinds of segments."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(2, 384, generator=generator)
    second = first + 0.05 * torch.randn(2, 384, generator=generator)
    assert 2 * nearness(first.T, second.T).own < 384
    assert worst_axis(first, second) is None


def test_convolutions_have_units_of_their_own() -> None:
    """Renumbered input channels are found, kernels are no units."""
    kernel = torch.randn(12, 10, 3, 3)
    same = worst_axis(kernel, kernel + 0.1 * torch.randn_like(kernel))
    other = worst_axis(kernel, kernel[:, torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9, 0])])
    assert same is not None
    assert other is not None
    assert (same.relation, other.relation) == ("own", "unrelated")


def test_many_units_are_sampled() -> None:
    places = spread(10_000, UNITS)
    assert len(places) == len(set(places.tolist())) == UNITS
    assert spread(5, UNITS).tolist() == [0, 1, 2, 3, 4]
