"""A description can ask for no model that its weights cannot fill, or that memory cannot hold."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fusionlab.checkpoints import sizes
from fusionlab.checkpoints.sizes import Stored, no_larger, refuse_absurd, within_memory
from fusionlab.errors import InputError


@pytest.fixture(autouse=True)
def no_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allowed beyond twice the numbers and four times the tensors would need a large model to reach."""
    monkeypatch.setattr(sizes, "_SLACK_NUMBERS", 0)
    monkeypatch.setattr(sizes, "_SLACK_TENSORS", 0)


def layers(count: int, bias: bool = True) -> Callable[[], nn.Module]:
    """Layers of 6 numbers in one parameter, or of 9 in two."""
    return lambda: nn.Sequential(*(nn.Linear(2, 3, bias=bias) for _ in range(count)))


@pytest.mark.parametrize("bias", [False, True])
def test_what_fits_is_built_without_memory(bias: bool) -> None:
    """A parameter that a layer does without counts for nothing; random numbers stay where they were."""
    state = torch.random.get_rng_state()
    with no_larger(Stored(*((9, 1) if bias else (6, 1))), "x"):
        model = layers(2, bias)()
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert torch.equal(state, torch.random.get_rng_state())
    assert {parameter.device.type for parameter in layers(9)().parameters()} == {"cpu"}, "nothing is counted afterwards"


@pytest.mark.parametrize(
    ("stored", "bias", "told"),
    [
        (Stored(8, 9), False, "needs at least 18 numbers in 3 parameters, but its weights hold 8 in 9"),
        (Stored(99, 1), True, "needs at least 24 numbers in 5 parameters, but its weights hold 99 in 1"),
    ],
)
def test_one_parameter_too_many_is_refused_at_once(stored: Stored, bias: bool, told: str) -> None:
    """By numbers or by parameters, with what there was by then."""
    with pytest.raises(InputError, match=f"^a file: the model that it describes {told}"), no_larger(stored, "a file"):
        layers(50, bias)()


def test_memory_is_not_outgrown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes for each number."""
    monkeypatch.setattr(sizes, "memory", lambda: 4 * 18)
    with within_memory("x"):
        layers(2)()
    with pytest.raises(InputError, match=r"^x: it needs at least 0 MiB in 5 parameters"), within_memory("x"):
        layers(3)()


def test_views_count_as_what_is_stored() -> None:
    """A tensor that repeats one number holds one."""
    one = torch.zeros(1)
    assert Stored.of([one.expand(1000), torch.zeros(3, 4), torch.zeros(10)[:4]]) == Stored(17, 3)


@pytest.mark.parametrize(
    ("field", "most"),
    [("num_hidden_layers", 10_000), ("decoder_layers", 10_000), ("depth", 10_000), ("num_labels", 100_000)],
)
def test_absurd_numbers_are_refused_by_name(field: str, most: int) -> None:
    refuse_absurd({field: most, "hidden_size": 10**9}, "x")
    for value in (most + 1, 10**300, 10**400):
        for config in ({field: value}, {"text_config": {field: value}}):
            with pytest.raises(InputError, match=f"^x: {field} is .*, but at most {most:,} was expected"):
                refuse_absurd(config, "x")
