"""Likeness of layers: unchanged by rotations and factors, and found by stack."""

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.growing.likeness import cka, unlikeness
from fusionlab.symmetry.groups import random_orthogonal
from tests.symmetry.models import generator, randomize

from .families import vit


def test_likeness_does_not_change_with_the_basis() -> None:
    x, y = (torch.randn(40, size, generator=generator(size), dtype=torch.float64) for size in (5, 7))
    turned = 3 * y @ random_orthogonal(7, generator=generator(1)) + 2
    assert cka(x, turned) == pytest.approx(cka(x, y))
    assert cka(y, turned) == pytest.approx(1)
    assert 0 <= cka(x, y) < 1
    assert cka(x, torch.zeros(40, 2)) == 0


def test_layers_are_compared_where_stacks_differ_in_length() -> None:
    small, large = randomize(vit(), 0).float(), randomize(vit(num_hidden_layers=3, hidden_size=20), 1).float()
    data = [{"pixel_values": torch.randn(6, 1, 8, 8, generator=generator(2))}] * 2
    found = unlikeness(small, large, data)
    assert {path: tuple(cost.shape) for path, cost in found.items()} == {"vit.layers": (2, 3)}
    assert bool(((found["vit.layers"] >= 0) & (found["vit.layers"] <= 1)).all())
    assert unlikeness(small, small, data) == {}
    with pytest.raises(InputError, match="data holds no batch"):
        unlikeness(small, large, [])
