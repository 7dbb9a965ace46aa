"""A new group is two files: the section 'A group' of docs/architectures.md, done to the letter."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import fusionlab.matching.groups
import fusionlab.symmetry.groups
from fusionlab.matching.align import align_states
from fusionlab.matching.groups import geometry
from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.matching.presets import preset
from fusionlab.merging.units import find_sites
from fusionlab.symmetry import Alignment
from tests.matching.groups import test_geometry
from tests.symmetry.models import generator

PAGE = Path(__file__).parents[3] / "docs" / "architectures.md"
FLOORS = (fusionlab.symmetry.groups, fusionlab.matching.groups)


def listings() -> tuple[list[str], str]:
    """The section's listings: two files, and how they are used."""
    section = re.search(r"^## A group$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert section is not None
    *files, use = re.findall(r"^```python\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\*\*\d\..*?`fusionlab/(\w+)/groups/signs\.py`", section[1], re.MULTILINE)
    assert named == ["symmetry", "matching"]
    return files, use


def test_the_files_are_those_of_the_package() -> None:
    files, _ = listings()
    for floor, text in zip(FLOORS, files, strict=True):
        assert (Path(floor.__path__[0]) / "signs.py").read_text(encoding="utf-8") == text


@pytest.fixture(scope="module")
def shown() -> Mapping[str, Any]:
    """The names of the section's last listing."""
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(listings()[1], names)
    return names


def states(shown: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return shown["hidden"].state_dict(), shown["model"].state_dict()


def test_the_listing_matches_a_model_with_its_hidden_twin(shown: Mapping[str, Any]) -> None:
    """The twin has the same function and other parameters; matched it has the model's own, by signs of both kinds."""
    inputs = torch.randn(5, 4, generator=generator(0))
    with torch.no_grad():
        torch.testing.assert_close(shown["hidden"](inputs), shown["model"](inputs))
    assert (shown["hidden"][0].weight - shown["model"][0].weight).norm() > 1
    for name, tensor in shown["twin"].state_dict().items():
        assert torch.equal(tensor, shown["model"].state_dict()[name])
    assert shown["found"].elements["units.signs"].unique().tolist() == [-1, 1]


def test_elements_obey_the_laws_of_groups(shown: Mapping[str, Any]) -> None:
    group, draw = shown["Signs"](3), generator(1)
    first, second = (group.random((2,), draw) for _ in range(2))
    assert group.check(group.compose(first, second), (2,)) is None
    assert torch.equal(group.compose(first, group.inverse(first)), group.identity((2,)))
    vectors = torch.randn(2, 3, 4, generator=draw, dtype=torch.float64)
    composed = group.act(group.compose(second, first), vectors)
    assert torch.equal(composed, group.act(second, group.act(first, vectors)))


def test_its_geometry_is_as_that_of_every_group(shown: Mapping[str, Any]) -> None:
    group = shown["Signs"](test_geometry.SIZE)
    test_geometry.test_the_closest_element_reaches_its_value_and_is_found_again(group)
    test_geometry.test_where_nothing_is_known_the_mean_is_the_prior_and_gains_nothing(group)
    test_geometry.test_what_fits_grows_along_the_mean(group)
    assert geometry(group).coordinates() == 0
    assert not geometry(group).has_balance


@pytest.mark.parametrize("start", ["annealed", "known"])
def test_every_start_finds_it(shown: Mapping[str, Any], start: str) -> None:
    """Annealing asks for the mean and the closest element; gauges find nothing to balance."""
    hidden, model = states(shown)
    options = preset("weights", start=start)
    found = align_states([hidden, model], shown["blueprint"], options, anchor=1)
    for name, tensor in found[0].apply(hidden).items():
        torch.testing.assert_close(tensor, model[name])


def test_permutations_alone_leave_the_signs(shown: Mapping[str, Any]) -> None:
    hidden, model = states(shown)
    found = match_permutations(hidden, model, shown["blueprint"], PermutationOptions(spaces=("all",)))
    assert set(found.elements) <= {"units"}


def test_units_are_merged_by_transport_with_their_signs(shown: Mapping[str, Any]) -> None:
    """One factor for each unit does not keep the units from being exchanged."""
    model = shown["model"].state_dict()
    sites = find_sites(shown["blueprint"], {name: tensor.shape for name, tensor in model.items()}, one_map=False)
    assert {site.units for found in sites.values() for site in found} == {"units"}


def test_an_alignment_is_saved_and_loads(shown: Mapping[str, Any], tmp_path: Path) -> None:
    shown["found"].save(tmp_path / "found.safetensors")
    loaded = Alignment.load(tmp_path / "found.safetensors", shown["blueprint"])
    for name, element in shown["found"].elements.items():
        assert torch.equal(loaded.elements[name], element)
