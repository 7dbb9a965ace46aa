"""Groups of neighbouring layers, by names alone."""

from fnmatch import fnmatchcase

import pytest

from fusionlab.errors import InputError
from fusionlab.search.bands import bands

NAMES = ["embed.weight", *(f"encoder.layer.{index}.mlp.0.weight" for index in range(5)), "norm.weight"]


def test_layers_are_cut_as_evenly_as_can_be() -> None:
    """Each name belongs to one group; numbers inside of a layer count for nothing."""
    found = bands(NAMES, 2)
    assert [band.name for band in found] == ["layers 0 to 2", "layers 3 to 4", "the rest"]
    patterns = [(place, pattern) for place, band in enumerate(found) for pattern in band.patterns]
    first = [next(place for place, pattern in patterns if fnmatchcase(name, pattern)) for name in NAMES]
    assert first == [2, 0, 0, 0, 1, 1, 2]


def test_stacks_of_equal_depth_go_together() -> None:
    names = [f"{stack}.block.{index}.w" for stack in ("encoder", "decoder") for index in range(2)]
    first, second, _ = bands(names, 2)
    assert first.patterns == ("encoder.block.0.*", "decoder.block.0.*")
    assert second.name == "layer 1"


def test_more_groups_than_layers_are_refused() -> None:
    with pytest.raises(InputError, match="search layers is 6, and the models have no stack of so many"):
        bands(NAMES, 6)
