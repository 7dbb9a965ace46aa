"""What of a matching is done where: every parameter in one process, all of a layer's block in the same."""

import pytest
from torch import nn

from fusionlab.matching.blocks import blocks, waves
from fusionlab.matching.presets import preset
from fusionlab.matching.sharing import share_of
from fusionlab.matching.team import ALONE, Alone
from fusionlab.symmetry import Blueprint, blueprint
from fusionlab.symmetry.roles import Role
from tests.symmetry.models import random_model


class One(Alone):
    """One of several processes that nobody has started."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def described(name: str) -> tuple[nn.Module, Blueprint]:
    model = random_model(name)
    return model, blueprint(model).in_gauge(preset("weights").gauge)


@pytest.mark.parametrize("name", ["bert-sequence", "vit-classifier"])
@pytest.mark.parametrize("count", [2, 3])
def test_layers_are_spread(name: str, count: int) -> None:
    """Together all parameters that are matched, none twice; a layer's block in one process; streams everywhere."""
    model, known = described(name)
    found = blocks(preset("weights").select(known), known)
    groups, state = waves(found, known), model.state_dict()
    shares = [share_of(groups, known, state, One(rank, count)) for rank in range(count)]
    names = [name for share in shares for name in share.names]
    assert sorted(names) == sorted(known.touching(space for block in found for space in block.names))
    for block in found:
        touched = set(known.touching(block.names))
        holders = [share for share in shares if touched & share.names]
        if block.spaces[0].layer is None:
            assert block.names <= shares[0].streams
        else:
            assert len(holders) == 1
            assert block.names.isdisjoint(shares[0].streams)
    assert any(known.spaces[name].role == Role.RESIDUAL for name in shares[0].streams)
    sizes = [sum(state[name].numel() for name in share.names) for share in shares]
    assert max(sizes) < 0.7 * sum(sizes)


def test_too_little_is_not_shared() -> None:
    """One process alone has everything, and so has each of more than there is anything for."""
    model, known = described("vit-classifier")
    groups = waves(blocks(preset("weights").select(known), known), known)
    everything = share_of(groups, known, model.state_dict(), ALONE)
    many = share_of(groups, known, model.state_dict(), One(0, 1000))
    assert everything == many
    assert everything.team is ALONE
