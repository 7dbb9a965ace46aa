"""Hyperparameters and weights by patterns of names: one rule for all methods."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import find_method, merge_states, methods
from fusionlab.merging.by_parameter import WEIGHTS, groups, of_parameter
from fusionlab.streaming import Recipe, stream_merge
from tests.merging.near_base import State, fine_tunes
from tests.streaming.folders import read, write

BY_PARAMETER = [name for name in methods() if find_method(name).unit != "model"]
FACTORS = [name for name in BY_PARAMETER if "lambda_" in find_method(name).hyperparameters]


def given_to(method: str, base: State) -> dict[str, Any]:
    """What a method needs, and hyperparameters under which a parameter alone is merged as it is among others."""
    needs = {"base": base} if "base" in find_method(method).requires() else {}
    return needs | ({"density": 1.0} if method == "ties" else {})


def assert_close(found: State, expected: State, names: list[str]) -> None:
    """The same numbers to rounding."""
    for name in names:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", FACTORS)
def test_factors_by_pattern(method: str) -> None:
    """Each parameter is what it is with its own factor for all; the first pattern counts; others have the default."""
    base, states = fine_tunes(3)
    given = given_to(method, base)
    merged = merge_states(states, method, lambda_={"t*": 0.5, "tall": 9.0, "w[hi]de": 2.0}, **given)
    default = find_method(method).hyperparameters["lambda_"]
    for factor, names in ((0.5, ["tall"]), (2.0, ["wide"]), (default, ["kernel", "stack", "bias", "scale"])):
        expected = merge_states(states, method, lambda_=factor, **given)
        assert_close(merged, expected, names)
    assert list(merged) == list(base)


@pytest.mark.parametrize("method", [name for name in BY_PARAMETER if not find_method(name).is_of_whole(WEIGHTS)])
def test_weights_by_pattern(method: str) -> None:
    """Each parameter is what it is with its own weights for all; others have those of the call."""
    base, states = fine_tunes(2)
    given = given_to(method, base)
    merged = merge_states(states, method, [3, 1], layer_weights={"tall": [1, 4], "b*": [1, 1]}, **given)
    for weights, names in (([1, 4], ["tall"]), ([1, 1], ["bias"]), ([3, 1], ["wide", "kernel", "stack", "scale"])):
        assert_close(merged, merge_states(states, method, weights, **given), names)


def test_every_number_of_such_a_method_may_differ() -> None:
    """Not factors alone: where on the arc of slerp, the density of dare, how wudi is solved."""
    base, states = fine_tunes(2)
    for method, name, values in (
        ("slerp", "t", (0.1, 0.9)),
        ("dare", "density", (0.2, 0.8)),
        ("wudi", "steps", (0, 3)),
    ):
        needs = given_to(method, base)
        merged = merge_states(states, method, **{name: {"tall": values[0], "*": values[1]}}, **needs)
        for value, parameter in zip(values, ("tall", "wide"), strict=True):
            assert_close(merged, merge_states(states, method, **{name: value}, **needs), [parameter])


@pytest.mark.parametrize("method", ["task_arithmetic", "iso_c", "ties"])
def test_files(tmp_path: Path, method: str) -> None:
    """A merge of files has the same factors and weights."""
    base, states = fine_tunes(2, dtype=torch.float32)
    given: dict[str, Any] = {"lambda_": {"tall": 0.5, "*": 2.0}, "layer_weights": {"wide": [0.9, 0.1]}}
    stored = [write(tmp_path / str(place), state) for place, state in enumerate(states)]
    (tmp_path / "out").mkdir()
    recipe = Recipe(find_method(method), given, [0.5, 0.5])
    stream_merge(stored, write(tmp_path / "base", base), recipe, tmp_path / "out")
    expected = merge_states(states, method, base=base, **given)
    for name, tensor in read(tmp_path / "out").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
    odd = Recipe(find_method(method), {"lambda_": {"nothing": 1.0}}, [0.5, 0.5])
    with pytest.raises(InputError, match="lambda_ has the pattern 'nothing', which matches no parameter"):
        stream_merge(stored, write(tmp_path / "again", base), odd, tmp_path / "out")


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("iso_c", {"lambda_": {"tal": 1.0}}, "lambda_ has the pattern 'tal', which matches no parameter; .* 'tall'"),
        ("iso_c", {"lambda_": {"tall": "1"}}, "lambda_ for 'tall' is '1'; expected a finite number"),
        ("iso_c", {"lambda_": {}}, "lambda_ is {}; expected patterns of names and values"),
        ("pcb", {"ratio": {"tall": 0.5}}, "ratio is .*; expected one value for the whole model"),
        ("pcb", {"layer_weights": {"tall": [1, 1]}}, "layer_weights is .*; expected one value for the whole model"),
        ("ties", {"density": {"tall": 1.0}}, "density is .*; expected one value for the whole model"),
        ("iso_cts", {"common": {"tall": 2.0}}, "common is 2.0; expected a number from 0 to 1"),
        ("simple", {"layer_weights": [1, 1]}, "layer_weights is .*; expected patterns of names, and for each a list"),
        ("simple", {"layer_weights": {"tall": 1}}, "layer_weights is .*; expected patterns of names, and for each a"),
        ("simple", {"layer_weights": {"tall": [1, "x"]}}, "layer_weights for 'tall' is 'x'; expected a finite number"),
        ("simple", {"layer_weights": {"tall": [1, 1, 1]}}, "^layer_weights for 'tall' has 3 numbers for 2 models"),
        ("simple", {"layer_weights": {"tall": [0, 0]}}, "^layer_weights for 'tall' are 0, 0; expected numbers from 0"),
        ("simple", {"layer_weights": {0: [1, 1]}}, "layer_weights has the pattern 0; expected text"),
        ("iso_c", {"lambda_": {0: 0.5}}, "lambda_ has the pattern 0; expected text"),
        ("iso_c", {"lambda_": 10**400}, "lambda_ is 10*; expected a finite number"),
        ("simple", {"lambda_": {"tall": 1.0}}, "has no hyperparameter 'lambda_'"),
    ],
)
def test_bad_values(method: str, given: dict[str, Any], words: str) -> None:
    """Refused by name, whatever is wrong."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=words):
        merge_states(states, method, base=base, **given)


def test_patterns_for_the_second_name_of_a_tied_parameter() -> None:
    """They would do nothing, so the name is said that the parameter is merged by."""
    table = torch.randn(4, 3)
    states = [{"embed": own, "head": own} for own in (table + 1, table - 1)]
    given: dict[str, Any] = {"base": {"embed": table, "head": table}}
    with pytest.raises(
        InputError, match="lambda_ has the pattern 'h\\*', which matches 'head'; that is tied to 'embed'"
    ):
        merge_states(states, "task_arithmetic", lambda_={"h*": 0.0}, **given)
    merged = merge_states(states, "task_arithmetic", lambda_={"*": 0.0}, **given)
    torch.testing.assert_close(merged["head"], table)


def test_files_with_a_tied_parameter_stored_twice(tmp_path: Path) -> None:
    """The same sentence, where a config says what is tied."""
    table = torch.randn(4, 3)
    config = {"tie_word_embeddings": True, "vocab_size": 4}
    tables = [{"embed": own, "head": own.clone()} for own in (table, table + 1, table - 1)]
    base, *stored = [write(tmp_path / str(place), state, **config) for place, state in enumerate(tables)]
    recipe = Recipe(find_method("task_arithmetic"), {"lambda_": {"head": 0.0}}, [0.5, 0.5])
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="which matches 'head'; that is tied to 'embed'"):
        stream_merge(stored, base, recipe, tmp_path / "out")


@pytest.mark.parametrize("method", ["simple", "task_arithmetic", "iso_c"])
def test_running_statistics_have_weights_too(tmp_path: Path, method: str) -> None:
    """Whether a method has a base or not, in memory and of files."""
    states = [
        {"bn.running_mean": torch.full((3,), mean), "bn.running_var": torch.ones(3), "bn.num_batches_tracked": one}
        for mean, one in ((0.0, torch.tensor(1)), (1.0, torch.tensor(1)), (5.0, torch.tensor(1)))
    ]
    base = {"base": states[0]} if "base" in find_method(method).requires() else {}
    given: dict[str, Any] = {"layer_weights": {"bn.*": [1, 0]}}
    torch.testing.assert_close(merge_states(states[1:], method, **base, **given)["bn.running_mean"], torch.ones(3))
    of_base, *stored = [write(tmp_path / str(place), state) for place, state in enumerate(states)]
    (tmp_path / "out").mkdir()
    recipe = Recipe(find_method(method), given, [0.5, 0.5])
    stream_merge(stored, of_base if base else None, recipe, tmp_path / "out")
    torch.testing.assert_close(read(tmp_path / "out")["bn.running_mean"], torch.ones(3))


@pytest.mark.parametrize("in_files", [False, True])
def test_running_statistics_are_not_trimmed_with_the_others(tmp_path: Path, *, in_files: bool) -> None:
    """Large ones do not raise the magnitude that TIES keeps changes from."""
    base, states = fine_tunes(2, dtype=torch.float32)
    expected = merge_states(states, "ties", base=base)
    more = [
        state | {"bn.running_mean": torch.full((200,), 9.0 * place), "bn.num_batches_tracked": torch.tensor(1)}
        for place, state in enumerate([base, *states])
    ]
    if in_files:
        of_base, *stored = [write(tmp_path / str(place), state) for place, state in enumerate(more)]
        (tmp_path / "out").mkdir()
        stream_merge(stored, of_base, Recipe(find_method("ties"), {}, [0.5, 0.5]), tmp_path / "out")
        merged = read(tmp_path / "out")
    else:
        merged = merge_states(more[1:], "ties", base=more[0])
    for name, tensor in expected.items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-6)


def test_groups_are_parameters_of_the_same_values() -> None:
    """As few calls of a method as there are different settings."""
    given = {"a": {"x.*": 1, "y.*": 2}, "b": 3}
    assert of_parameter("x.1", given) == {"a": 1, "b": 3}
    assert of_parameter("z", given) == {"b": 3}
    found = groups(["x.1", "y.1", "x.2", "z"], given)
    assert [names for names, _ in found] == [["x.1", "x.2"], ["y.1"], ["z"]]


def test_no_method_has_a_hyperparameter_of_the_reserved_name() -> None:
    """Every method's layer_weights mean the same."""
    assert not [name for name in methods() if "layer_weights" in get_type_hints(find_method(name).function)]
