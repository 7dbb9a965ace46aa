"""What must hold for every merge method there is, and for those that will be."""

import inspect
import math
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.merging import find_method, merge_states, methods
from fusionlab.merging.kinds import PerModel
from fusionlab.models import with_state
from fusionlab.statistics import basis_of
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.types import Batch, State
from tests.merging.measured import measure
from tests.merging.near_base import fine_tunes
from tests.symmetry.models import generator, largest_difference, outputs, random_model, relative

NAME = "vit-classifier"
# Settings under which nothing is dropped or blurred: what a method leaves out on purpose cannot come back.
LOSSLESS: dict[str, dict[str, Any]] = {
    "adamerging": {"start": 0.5, "steps": 0},
    "breadcrumbs": {"density": 1.0, "gamma": 0.0},
    "dare": {"density": 1.0},
    "della": {"density": 1.0, "epsilon": 0.0, "lambda_": 1.0},
    "sce": {"density": 1.0},
    "wudi": {"solver": "exact"},
    "ties": {"density": 1.0},
    "knots": {"density": 1.0},
    "ot": {"solver": "exact"},
}
# These change the spectrum of what they merge, or the size of its entries, by definition.
RESHAPES = {"ace", "iso_c", "iso_cts", "pcb"}
# With all the weight on one model these give that model. Not so by definition: stock measures the angle between models
# that have a weight; ot first transports models by maps that need not keep their function.
FOLLOWS_WEIGHTS = set(methods()) - {"stock", "ot"} - RESHAPES
# Equal models give that model. Of several equal ones tsv_m keeps the largest singular values only.
KEEPS_EQUAL = set(methods()) - {"tsv_m"} - RESHAPES


def as_states(models: list[nn.Module]) -> list[dict[str, Tensor]]:
    return [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in models]


def ingredients(method: str, models: list[nn.Module], base: nn.Module) -> dict[str, Any]:
    """All that a method asks for."""
    needs = set(find_method(method).requires(**LOSSLESS.get(method, {})))
    given: dict[str, Any] = {"seed": 1}
    if "blueprint" in needs:
        given["blueprint"] = blueprint(models[0])
    if "base" in needs:
        given["base"] = base.state_dict()
    if "score" in needs:
        given["score"] = score
    if "inputs" in needs:
        given |= {"inputs": [inputs_of(model) for model in models], "model": partial(like, models[0])}
    if kinds := needs & {"gram", "fisher", "activations"}:
        given["statistics"] = [measure(model, *kinds) for model in models]
    return given


def inputs_of(model: nn.Module) -> list[Batch]:
    """A batch of random inputs."""
    dtype = next(model.parameters()).dtype
    return [{i.name: i.random(20, generator(5), dtype) for i in blueprint(model).inputs}]


def like(model: nn.Module, state: State, _: int) -> nn.Module:
    """A model with those parameters of a state that it has."""
    return with_state(model, {name: state[name] for name in model.state_dict()})


def score(state: State) -> float:
    """Any number that depends on the whole state."""
    return float(sum(tensor.double().sum() for tensor in state.values() if tensor.is_floating_point()))


def merge(
    method: str, models: list[nn.Module], base: nn.Module, weights: list[float] | None = None, **changes: Any
) -> dict[str, Tensor]:
    given = ingredients(method, models, base) | LOSSLESS.get(method, {}) | changes
    return merge_states([model.state_dict() for model in models], method, weights, **given)


def matched_twin(model: nn.Module) -> nn.Module:
    """The model in another basis in every space, and back again: equal to rounding, not to the bit."""
    alignment = Alignment.random(blueprint(model), generator(3))
    twin = alignment.apply(model)
    assert largest_difference(twin.state_dict(), model.state_dict()) > 0.1
    return alignment.inverse().apply(twin)


@pytest.mark.parametrize("weights", [None, [1.0, 3.0]], ids=["equal", "weighted"])
@pytest.mark.parametrize("method", sorted(KEEPS_EQUAL))
def test_matched_twin_gives_the_model(method: str, weights: list[float] | None) -> None:
    """A model and its matched twin merge to the model: the same function, and up to bases the same parameters."""
    model, base = random_model(NAME), random_model(NAME, 7)
    merged = merge(method, [model, matched_twin(model)], base, weights)
    assert relative(outputs(with_state(model, merged)), outputs(model)) < 1e-9
    if method != "circuit":
        assert largest_difference(merged, model.state_dict()) < 1e-9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("method", methods())
def test_types_names_and_shapes_are_the_first_models(method: str, dtype: torch.dtype) -> None:
    """Whatever a method computes in, it returns a state that the first model's class takes, finite."""
    models = [random_model(NAME, seed).to(dtype) for seed in range(2)]
    merged = merge(method, models, random_model(NAME, 7).to(dtype))
    for name, tensor in models[0].state_dict().items():
        assert merged[name].dtype == tensor.dtype
        assert merged[name].shape == tensor.shape
        assert torch.isfinite(merged[name]).all()
    assert merged.keys() == models[0].state_dict().keys()


@pytest.mark.parametrize("method", methods())
def test_inputs_are_not_modified(method: str) -> None:
    """Neither while merging nor when the result is written to."""
    models, base = [random_model(NAME, seed) for seed in range(2)], random_model(NAME, 7)
    before = as_states([*models, base])
    for tensor in merge(method, models, base).values():
        tensor.add_(1)
    for old, new in zip(before, as_states([*models, base]), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize("method", sorted(FOLLOWS_WEIGHTS))
def test_all_weight_on_one_model(method: str) -> None:
    """The result is that model: the same function."""
    models, base = [random_model(NAME, seed) for seed in range(2)], random_model(NAME, 7)
    for weights, kept in (([1.0, 0.0], models[0]), ([0.0, 2.0], models[1])):
        merged = merge(method, models, base, weights)
        assert relative(outputs(with_state(kept, merged)), outputs(kept)) < 1e-9


@pytest.mark.parametrize("method", methods())
def test_same_seed_same_result(method: str) -> None:
    """To the bit, with the method's own defaults."""
    models, base = [random_model(NAME, seed) for seed in range(2)], random_model(NAME, 7)
    given = ingredients(method, models, base)
    first, second = (merge_states([model.state_dict() for model in models], method, **given) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("method", methods())
def test_what_is_missing_is_named(method: str) -> None:
    """A method that needs something says so in one sentence; one that needs nothing runs."""
    states = as_states([random_model(NAME, seed) for seed in range(2)])
    if find_method(method).requires():
        with pytest.raises(InputError, match=f"merge method '{method}' needs "):
            merge_states(states, method)
    else:
        assert merge_states(states, method).keys() == states[0].keys()


@pytest.mark.parametrize("method", methods())
def test_integer_buffers(method: str) -> None:
    """Equal ones are kept; there is no merging of different ones."""
    models, base = [random_model(NAME, seed) for seed in range(2)], random_model(NAME, 7)
    given = ingredients(method, models, base) | LOSSLESS.get(method, {})
    *states, start = [{**state, "steps": torch.tensor([4])} for state in as_states([*models, base])]
    given |= {"base": start} if "base" in given else {}

    def merged(**changes: Any) -> dict[str, Tensor]:
        measured = [
            {kind: replace(found, basis=basis_of(state)) for kind, found in one.items()}
            for one, state in zip(given.get("statistics", ()), states, strict=False)
        ]
        return merge_states(states, method, **(given | {"statistics": measured} | changes))

    assert merged()["steps"].tolist() == [4]
    states[1]["steps"] = torch.tensor([5])
    with pytest.raises(InputError, match="integer buffer 'steps' differs"):
        # A score that never falls, so that every model is tried.
        merged(score=lambda state: 0.0)


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", [name for name in methods() if find_method(name).requires() == ("base",)])
def test_what_is_no_number_is_never_dropped(method: str, entry: float) -> None:
    """By whatever a method leaves out: the smallest, the largest, a few at random, those of another sign."""
    base, states = fine_tunes(3)
    states[1]["tall"][4, 2] = states[2]["bias"][3] = entry
    merged = merge_states(states, method, base=base)
    assert not torch.isfinite(merged["tall"][4, 2])
    assert not torch.isfinite(merged["bias"][3])


EVERY = [(method, name) for method in methods() for name in find_method(method).hyperparameters]
# By kind of hyperparameter the values that are none of it.
NO_NUMBER = [math.nan, math.inf, -math.inf, "nan", "0.5", [0.5], {"a": "1"}, {"a": {}}, {}, True, 1j]
WRONG = {
    float: NO_NUMBER,
    int: [*NO_NUMBER, 2.5, 3.0],
    bool: ["true", 1, 0.0, [True]],
    str: ["neither", "", 1.0, math.nan, ["model"], {"a": 1}, True],
}


@pytest.mark.parametrize(("method", "name"), EVERY)
def test_values_of_another_type_are_refused(method: str, name: str) -> None:
    """Every hyperparameter of every method: a sentence with its name and value, whatever was given in its place."""
    chosen = find_method(method)
    default, kind = chosen.hyperparameters[name], get_type_hints(chosen.function)[name]
    plain = float if kind == float | None else type(default) if default is not None else str
    wrong = [*WRONG[plain], *([] if default is None else [None])]
    if kind == PerModel:  # a list of numbers will do, of nothing else
        wrong = [*(value for value in wrong if value != [0.5]), *([0.5, value] for value in NO_NUMBER)]
    for value in wrong:
        with pytest.raises(InputError, match=f"^{name}( for 'a')?( of model [01])? is .*; expected "):
            chosen.requires(**{name: value})
    chosen.requires(**{name: default})


def test_every_hyperparameter_has_a_type_that_is_checked() -> None:
    """A method that is added with another type would have its values unchecked."""
    for method in methods():
        function = find_method(method).function
        assert get_type_hints(function).keys() == {*inspect.signature(function).parameters, "return"}
    assert len(EVERY) > 15


def test_numbers_of_any_library_are_numbers() -> None:
    """numpy's, torch's as numbers, and whole ones where a fraction may stand."""
    for value in (np.float32(0.5), np.int64(1), 1, torch.tensor(0.5).item()):
        find_method("slerp").requires(t=value)
    find_method("karcher").requires(iterations=np.int32(3))
    assert find_method("slerp").requires(t=None) == ()


def test_a_refused_value_is_never_worked_with() -> None:
    """The sentence comes from the merge too, before anything is computed."""
    states = as_states([random_model(NAME, seed) for seed in range(2)])
    with pytest.raises(InputError, match="t is 'nan'; expected a finite number or null"):
        merge_states(states, "slerp", t="nan")
    with pytest.raises(InputError, match=r"iterations is 2\.0; expected a whole number"):
        merge_states(states, "karcher", iterations=2.0)
