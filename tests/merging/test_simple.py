"""Weighted averaging, and the registry that all merge methods go through."""

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states, methods
from fusionlab.merging import registry as merging_registry
from fusionlab.merging.ingredients import Ingredients
from tests.merging.random_states import State, random_states


@pytest.mark.parametrize(("count", "weights"), [(2, None), (3, None), (3, [1.0, 2.0, 5.0]), (2, [0.0, 4.0])])
def test_weighted_mean(count: int, weights: list[float] | None) -> None:
    """numpy's average in float64, of all models and with weights of any sum."""
    given = random_states(count)
    merged = merge_states(given, "simple", weights)
    for name, tensor in merged.items():
        expected = np.average(np.stack([state[name].numpy() for state in given]), axis=0, weights=weights)
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=0, atol=1e-14)


def test_half_precision_is_summed_in_float32() -> None:
    """1, then 32 times 1/256: in bfloat16 every step would be lost and the sum would stay 1."""
    small = {"w": torch.tensor([2.0**-8], dtype=torch.bfloat16)}
    given = [{"w": torch.tensor([1.0], dtype=torch.bfloat16)}, *[small] * 32]
    lost = given[0]["w"].clone()
    for state in given[1:]:
        lost += state["w"]
    assert lost == 1, "the case must be one where bfloat16 loses"
    merged = merge_states(given)["w"]
    assert merged.dtype == torch.bfloat16
    assert merged == torch.tensor((1 + 32 / 256) / 33).to(torch.bfloat16)
    assert merged != torch.tensor(1 / 33).to(torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_the_first_models(dtype: torch.dtype) -> None:
    """Whatever the others are stored in."""
    first, second = random_states(1, dtype)[0], random_states(2, torch.float32)[1]
    assert {tensor.dtype for tensor in merge_states([first, second]).values()} == {dtype}


def test_inputs_are_not_modified() -> None:
    """Neither while merging nor through the result."""
    given = [{**state, "steps": torch.tensor([3])} for state in random_states(2)]
    copies = [{name: tensor.clone() for name, tensor in state.items()} for state in given]
    for tensor in merge_states(given, weights=[1, 0]).values():
        tensor.add_(1)
    assert all(torch.equal(s[name], c[name]) for s, c in zip(given, copies, strict=True) for name in s)


def test_integer_buffers_must_agree() -> None:
    """Equal ones are kept as they are, different ones have no mean."""
    first, second = ({"steps": torch.tensor([5, 7])} for _ in range(2))
    merged = merge_states([first, second])["steps"]
    assert merged.dtype == torch.int64
    assert merged.tolist() == [5, 7]
    second["steps"][1] = 8
    with pytest.raises(InputError, match="integer buffer 'steps' differs"):
        merge_states([first, second])


@pytest.mark.parametrize("odd", [1, 2, 3])
def test_an_integer_buffer_that_differs_in_any_model_is_refused(odd: int) -> None:
    """In the second or in the last of four."""
    states = [{**state, "steps": torch.tensor([3])} for state in random_states(4)]
    assert merge_states(states)["steps"].tolist() == [3]
    states[odd]["steps"] = torch.tensor([4])
    with pytest.raises(InputError, match="integer buffer 'steps' differs"):
        merge_states(states)


def test_models_that_do_not_fit() -> None:
    """Too few, other names, other shapes: the parameter is named."""
    first, second = random_states(2)
    with pytest.raises(InputError, match="1 model; expected at least two"):
        merge_states([first])
    with pytest.raises(InputError, match="only model 1 has the parameter 'z'"):
        merge_states([first, {**second, "z": torch.zeros(1)}])
    with pytest.raises(InputError, match="only the first model has the parameter 'b'"):
        merge_states([first, {n: t for n, t in second.items() if n != "b"}])
    with pytest.raises(InputError, match="parameter 'b' has shapes 8 and 5 in models 0 and 1"):
        merge_states([first, {**second, "b": torch.zeros(5)}])


def test_registry_refuses_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods and hyperparameters that do not exist; a method that is registered can be called with its own."""
    with pytest.raises(InputError, match="'nope' does not exist; expected one of "):
        merge_states(random_states(2), "nope")
    with pytest.raises(InputError, match="'simple' has no hyperparameter 'alpha'; expected none"):
        merge_states(random_states(2), "simple", alpha=1)
    monkeypatch.setattr(merging_registry, "METHODS", dict(merging_registry.METHODS))

    @merging_registry.merge_method("scaled")
    def scaled(ingredients: Ingredients, factor: float = 1.0) -> State:
        return {name: factor * ingredients.weights[1] * tensor for name, tensor in ingredients.states[1].items()}

    assert "scaled" in methods()
    given = random_states(2)
    merged = merge_states(given, "scaled", [1, 3], factor=2.0)
    assert torch.equal(merged["w"], 1.5 * given[1]["w"])
    with pytest.raises(InputError, match="'scaled' has no hyperparameter 'alpha'; expected factor"):
        merge_states(given, "scaled", alpha=2.0)
