"""RegMean of weights that several maps share, that are more than maps, or that look alike."""

import numpy as np
import torch
from torch import Tensor, nn

from fusionlab.merging import merge_states
from tests.merging.least_squares import IN, grams_of, random_inputs, random_state
from tests.statistics.passes import passed
from tests.symmetry.models import generator


def test_weights_that_are_more_than_maps_are_averaged() -> None:
    """What is solved for one name would be the wrong thing under the other."""
    states = [{**(state := random_state(seed)), "table": state["a.weight"]} for seed in range(2)]
    statistics = [{"gram": grams_of(state, random_inputs(seed))} for seed, state in enumerate(states)]
    merged, mean = merge_states(states, "regmean", statistics=statistics), merge_states(states)
    assert torch.equal(merged["a.weight"], mean["a.weight"])
    assert torch.equal(merged["table"], mean["table"])
    assert not torch.equal(merged["c.weight"], mean["c.weight"])


def test_equal_values_are_no_tie() -> None:
    """Copies, as upcycled experts start from, are maps of their own and solved for like any other."""
    states = [random_state(seed) for seed in range(2)]
    statistics = [{"gram": grams_of(state, random_inputs(seed))} for seed, state in enumerate(states)]
    alone = merge_states(states, "regmean", statistics=statistics)
    copied = [{**state, "table": state["a.weight"].clone()} for state in states]
    statistics = [{"gram": grams_of(state, random_inputs(seed))} for seed, state in enumerate(copied)]
    merged = merge_states(copied, "regmean", statistics=statistics)
    torch.testing.assert_close(merged["a.weight"], alone["a.weight"], rtol=0, atol=1e-12)
    assert float((merged["a.weight"] - merge_states(states)["a.weight"]).abs().max()) > 0.01


class Tied(nn.Module):
    """Two maps of one weight and bias, which read different inputs, and one beside them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.first, self.own, self.second = (nn.Linear(IN, IN, dtype=torch.float64) for _ in range(3))
        draw = generator(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        self.second.weight, self.second.bias = self.first.weight, self.first.bias

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.second(self.own(self.first(pixel_values)).tanh())


def test_a_weight_of_two_maps_is_solved_for_both() -> None:
    """Least squares on the inputs of both uses together; both names hold the solution."""
    models = [Tied(seed) for seed in range(2)]
    inputs = [random_inputs(seed) for seed in range(2)]
    given = [passed(model, [{"pixel_values": x}]) for model, x in zip(models, inputs, strict=True)]
    states = [model.state_dict() for model in models]
    merged = merge_states(states, "regmean", statistics=given, alpha=1.0, ridge=0.0)
    rows = []
    for model, x in zip(models, inputs, strict=True):
        both = torch.cat((x, model.own(model.first(x)).tanh())).detach()
        rows.append(torch.cat((both, torch.ones(len(both), 1)), 1))
    maps = [torch.cat((s["first.weight"], s["first.bias"][:, None]), 1).mT for s in states]
    right = torch.cat([x @ own for x, own in zip(rows, maps, strict=True)])
    expected = np.linalg.lstsq(torch.cat(rows).numpy(), right.numpy())[0]
    for name in ("first", "second"):
        np.testing.assert_allclose(merged[f"{name}.weight"].numpy(), expected[:-1].T, rtol=0, atol=1e-11)
        np.testing.assert_allclose(merged[f"{name}.bias"].numpy(), expected[-1], rtol=0, atol=1e-11)
