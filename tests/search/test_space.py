"""What a search may change, and the settings that a point stands for."""

from typing import Any

import pytest

from fusionlab.errors import InputError
from fusionlab.merging import find_method
from fusionlab.search import SearchOptions, Space

NAMES = ["embed.weight", *(f"layer.{index}.weight" for index in range(4))]


def space(method: str = "ties", given: dict[str, Any] | None = None, **options: Any) -> Space:
    return Space.of(method, 3, SearchOptions(**options), given, [1, 1, 2], NAMES)


def test_the_start_stands_for_the_settings_as_given() -> None:
    """What is given stays as it is, unless it is named."""
    found = space(given={"lambda_": 0.7})
    assert {axis.setting for axis in found.axes} == {"density", "weights"}
    settings = found.settings(found.start())
    assert settings.hyperparameters == {"lambda_": 0.7, "density": 0.2}
    assert settings.weights == pytest.approx([0.25, 0.25, 0.5])
    named = space(given={"lambda_": 0.7}, over={"lambda_": [0.5, 2]})
    assert named.start() == {"lambda_": 0.7}
    assert named.settings({"lambda_": 1.5}).hyperparameters == {"lambda_": 1.5}


def test_groups_of_layers_have_values_of_their_own() -> None:
    """The method takes them by patterns; the quantile of the whole model stays one number."""
    found = space(layers=2)
    settings = found.settings(found.start() | {"lambda_ (layers 0 to 1)": 2.0, "weights (model 1, the rest)": 3.0})
    assert settings.hyperparameters["density"] == 0.2
    by_layer = settings.hyperparameters["lambda_"]
    assert by_layer == {"layer.0.*": 2, "layer.1.*": 2, "layer.2.*": 1, "layer.3.*": 1, "*": 1}
    by_layer = settings.hyperparameters["layer_weights"]
    assert by_layer["*"] == pytest.approx([0.75 / 5.25, 3 / 5.25, 1.5 / 5.25])
    assert by_layer["layer.3.*"] == pytest.approx([0.25, 0.25, 0.5])
    find_method("ties").check(settings.weights, settings.hyperparameters, NAMES)


def test_weights_that_a_method_looks_at_as_a_whole_are_no_layers_own() -> None:
    """Scores of PCB depend on them, so groups of layers differ in factors alone."""
    found = space("pcb", over={"lambda_": [0.5, 2], "weights": [0.5, 2]}, layers=2)
    assert {axis.setting for axis in found.axes if axis.band is not None} == {"lambda_"}
    settings = found.settings(found.start())
    find_method("pcb").check(settings.weights, settings.hyperparameters, NAMES)


def test_whole_numbers_and_words() -> None:
    found = space("consensus", over={"k": [1, 3], "combination": ["linear", "ties"]})
    assert [(axis.is_whole, axis.words) for axis in found.axes] == [(True, ()), (False, ("linear", "ties"))]
    assert found.holds({"k": 2, "combination": "ties"})
    assert not found.holds({"k": 4, "combination": "ties"})


def test_weights_that_would_do_nothing_are_not_searched() -> None:
    """Those of layers, and the place between two models, stand in their stead; the mappings given stay as they are."""
    by_layer = {"layer.0.*": [1, 0, 0]}
    found = space(given={"layer_weights": by_layer}, layers=2)
    assert {axis.setting for axis in found.axes} == {"lambda_", "density"}
    assert found.settings(found.start()).hyperparameters["layer_weights"] == {"layer.0.*": [1, 0, 0]}
    assert by_layer == {"layer.0.*": [1, 0, 0]}
    with pytest.raises(InputError, match="search over names weights, and layer_weights are given"):
        space(given={"layer_weights": by_layer}, over={"weights": None})
    two = Space.of("slerp", 2, SearchOptions(), None, [3, 1])
    assert two.start() == {"t": 0.25}
    assert two.given.hyperparameters == {"t": 0.25}
    assert two.given.weights == [0.5, 0.5]
    with pytest.raises(InputError, match="search has nothing to look for in 'slerp'"):
        Space.of("slerp", 2, SearchOptions(), {"t": 0.5})


@pytest.mark.parametrize("value", [7.0, {"layer.*": 0.5}])
def test_settings_as_given_need_not_be_a_point(value: object) -> None:
    """They may lie outside of the ranges, or differ by patterns."""
    found = space(given={"lambda_": value}, over={"lambda_": None})
    assert not found.has_start
    assert found.given.hyperparameters == {"lambda_": value}


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        (
            "ties",
            {"over": {"lamda": None}},
            "search over names 'lamda', which 'ties' does not have; .* did you mean lambda_",
        ),
        ("ties", {"over": {"lambda_": [2, 1]}}, "search over lambda_ is .*; expected the lower number first"),
        ("ties", {"over": {"weights": [0, 1]}}, "search over weights is .*; expected numbers above 0"),
        ("ties", {"over": {"lambda_": 2}}, "search over lambda_ is 2; expected .lowest, highest."),
        ("consensus", {"over": {"k": [0.5, 1.5]}}, "search over k is .*, and k is a whole number; expected whole"),
        ("ties", {"over": {}}, "search has nothing to look for in 'ties'"),
        ("ace", {"over": {"epsilon": None}}, "search knows no range of 'epsilon'; expected over to give it"),
        ("ties", {"over": {"lambda_": ["small", "large"]}}, "search over lambda_ is .*, and lambda_ is a number"),
        ("ties", {"over": {"density": ["a", "b"]}}, "search over density is .*, and density is a number"),
        ("slerp", {"over": {"t": None, "weights": None}}, "search over names weights beside t"),
        ("regmean", {"layers": 2}, "search layers is 2, and 'regmean' takes one value for the whole model"),
    ],
)
def test_what_cannot_be_searched_is_refused(method: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        space(method, **options)
