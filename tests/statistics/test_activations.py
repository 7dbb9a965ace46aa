"""The sample of activations depends on the data and the seed alone."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.statistics import Activations
from fusionlab.statistics.activations import RowPriorities, RowSample
from fusionlab.statistics.layout import Layout
from fusionlab.statistics.likelihood import scores
from fusionlab.symmetry.float64 import InFloat64
from tests.statistics.passes import activations_of, batched, examples_for, inputs_by_hand, model_of
from tests.symmetry.models import generator


def assert_equal(found: Activations, expected: Activations) -> None:
    assert found.drawn == expected.drawn
    for part in ("inputs", "outputs"):
        first, second = getattr(found, part), getattr(expected, part)
        assert first.keys() == second.keys()
        for name in first:
            torch.testing.assert_close(first[name], second[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["bert-sequence", "bart-lm", "vit-classifier", "albert-token"])
def test_sample_does_not_depend_on_batches(name: str) -> None:
    """Batch size, padding and the order of examples change nothing, whether some rows are kept or all."""
    model = model_of(name)
    examples = examples_for(model)
    for samples in (7, 1000):
        expected = activations_of(model, batched(examples, 5), samples=samples)
        assert_equal(activations_of(model, batched(examples, 1), samples=samples), expected)
        assert_equal(activations_of(model, batched(examples[::-1], 2, extra=3), samples=samples), expected)


def test_same_rows_for_every_model() -> None:
    """Two models draw the same rows of the same data, other rows of other data or with another seed."""
    first, second = model_of("bert-token"), model_of("bert-token", seed=1)
    batches = batched(examples_for(first), 2)
    found = activations_of(first, batches, samples=8)
    assert activations_of(second, batches, samples=8).drawn == found.drawn
    assert activations_of(first, batches, samples=8, seed=1).drawn != found.drawn
    assert activations_of(first, batched(examples_for(first, seed=4), 2), samples=8).drawn != found.drawn


def test_labels_do_not_matter() -> None:
    """Labels are no input: with them or without, the same rows are drawn."""
    model = model_of("bert-sequence")
    (batch,) = batched(examples_for(model), 5)
    plain = activations_of(model, [batch], samples=8)
    assert activations_of(model, [{**batch, "labels": torch.arange(5) % 3}], samples=8).drawn == plain.drawn


def test_rows_are_rows_of_the_inputs() -> None:
    """Kept rows are different rows of what the map reads, no more than asked for, none of them padding."""
    model = model_of("bert-sequence")
    examples = examples_for(model)
    rows = inputs_by_hand(model, examples, lambda value, example: True)
    found = activations_of(model, batched(examples, 5), samples=9)
    for name, kept in found.inputs.items():
        assert kept.shape[1] == min(9, len(rows[name]))
        distance = torch.cdist(kept.T, rows[name])
        assert float(distance.min(1).values.max()) < 1e-6
        assert len(distance.argmin(1).unique()) == kept.shape[1]


@pytest.mark.parametrize("name", ["bert-sequence", "gpt2-token-relu", "vit-classifier", "t5-lm"])
def test_outputs_belong_to_inputs(name: str) -> None:
    """What is kept of a map's output is the map applied to what is kept of its input, column by column."""
    model = model_of(name)
    found = activations_of(model, batched(examples_for(model), 2), samples=6)
    state = model.state_dict()
    for weight, linear in found.maps.items():
        matrix = state[weight].T if linear.dim == 0 else state[weight].flatten(1)
        expected = matrix @ found.inputs[weight]
        if linear.bias is not None:
            expected = expected + state[linear.bias][:, None]
        torch.testing.assert_close(found.outputs[weight], expected)


def test_sample_is_uniform() -> None:
    """Of 120 sentences a third of all tokens is drawn, about as often at each place (5 standard deviations)."""
    model = model_of("bert-token")
    examples = examples_for(model, 120)
    name = "bert.encoder.layer.1.attention.self.query.weight"
    every = inputs_by_hand(model, examples, lambda value, example: True)[name]
    found = activations_of(model, batched(examples, 40), samples=len(every) // 3, weights=[name])
    kept = torch.cdist(found.inputs[name].T, every).argmin(1)
    assert len(kept.unique()) == len(every) // 3
    places = torch.cat([torch.arange(example["input_ids"].shape[1]) for example in examples])
    for place in range(8):
        tokens = int((places == place).sum())
        deviation = (tokens * 1 / 3 * 2 / 3) ** 0.5
        assert abs(int((places[kept] == place).sum()) - tokens / 3) < 5 * deviation


@pytest.mark.parametrize("limit", [1, 4, 9, 100])
def test_sample_keeps_the_rows_of_least_priority(limit: int) -> None:
    """Whatever it is given in which parts, and also where it is looked at in between."""
    draw = generator(limit)
    sample, rows, priorities = RowSample(limit, 2, torch.float64), [], []
    for scale, count in enumerate((3, 0, 7, 1, 12, 5), start=1):
        rows.append(torch.randn(2 * count, 2, generator=draw, dtype=torch.float64))
        index = torch.randperm(2 * count, generator=draw)[:count]
        priorities.append(scale * torch.rand(count, generator=draw, dtype=torch.float64))
        sample.add(rows[-1], index, priorities[-1])
        rows[-1] = rows[-1][index]
        order = torch.cat(priorities).argsort()[:limit]
        kept = sample.kept()
        assert torch.equal(kept[0], torch.cat(rows)[order])
        assert torch.equal(kept[1], torch.cat(priorities)[order])


def test_every_call_of_a_map_draws_for_itself() -> None:
    """Layers that share weights: a token that is kept of one layer is not for that reason kept of the next."""

    def priorities(call: int, drawn: RowPriorities) -> list[float]:
        seen: Any = SimpleNamespace(layout=Layout(0, 1, "encoder"), leading=torch.Size((2, 5)), call=call, valid=None)
        return drawn.priorities(seen)[1].tolist()

    one, other = RowPriorities([1, 2], 0), RowPriorities([1, 2], 0)
    first, second = priorities(0, one), priorities(1, one)
    assert len({*first, *second}) == 20
    assert (priorities(1, other), priorities(0, other)) == (second, first)
    assert not {*first} & {*priorities(0, RowPriorities([1, 2], 1))}


def test_a_tied_map_is_chosen_by_any_of_its_names() -> None:
    """What is kept goes by all of them."""
    shared = nn.ModuleDict({name: nn.Linear(3, 3, bias=False).double() for name in "ab"})
    shared["b"].weight = shared["a"].weight

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps = shared

        def forward(self, pixel_values: Tensor) -> Tensor:
            return self.maps["b"](self.maps["a"](pixel_values).tanh())

    data = [{"pixel_values": torch.randn(6, 3, generator=generator(0), dtype=torch.float64)}]
    found = activations_of(Model(), data, weights=["maps.b.weight"])
    assert set(found.inputs) == set(found.outputs) == set(found.maps) == {"maps.a.weight", "maps.b.weight"}
    assert found.inputs["maps.a.weight"].shape == (3, 12)


def test_chosen_weights() -> None:
    """Only the named weights are kept; an unknown name is refused."""
    model = model_of("bert-token")
    batches = batched(examples_for(model), 5)
    name = "bert.encoder.layer.1.attention.self.value.weight"
    found = activations_of(model, batches, weights=[name])
    assert set(found.inputs) == set(found.outputs) == set(found.maps) == {name}
    torch.testing.assert_close(found.inputs[name], activations_of(model, batches).inputs[name])
    with pytest.raises(InputError, match=r"'nothing.weight' is no weight"):
        activations_of(model, batches, weights=["nothing.weight"])
    with pytest.raises(InputError, match="samples is 0"):
        activations_of(model, batches, samples=0)


@pytest.mark.parametrize("name", ["bert-sequence", "gpt2-token-relu", "vit-classifier", "t5-lm", "albert-token"])
def test_gradients_are_those_of_the_likelihood(name: str) -> None:
    """Over all rows those by what a map writes sum to that by its bias, and with its inputs to that by its weight."""
    model = model_of(name)
    batches = batched(examples_for(model), 2)
    found = activations_of(model, batches, samples=1000, gradients=True)
    assert_equal(found, activations_of(model, batches, samples=1000))
    with InFloat64():
        total = torch.stack([score.sum() for batch in batches for score in scores(model.eval(), batch)]).sum()
    parameters = dict(model.named_parameters())
    wanted = {name: parameters[name] for name in found.gradients if name in parameters}
    expected = torch.autograd.grad(total, list(wanted.values()), allow_unused=True, materialize_grads=True)
    assert found.gradients.keys() == found.outputs.keys()
    for (weight, parameter), gradient in zip(wanted.items(), expected, strict=True):
        product = found.gradients[weight] @ found.inputs[weight].T
        # A weight that other modules use too, as an embedding, has their gradients beside the map's.
        if found.inputs[weight].shape[1] < 1000 and not _is_shared(model, parameter):
            product = product.T if found.maps[weight].dim == 0 else product.view_as(parameter)
            torch.testing.assert_close(product, gradient, rtol=1e-7, atol=1e-9)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in parameters.values())


@pytest.mark.parametrize("gradients", [False, True])
def test_as_many_rows_as_numbers_hold(gradients: bool) -> None:
    """A tensor that several maps read counts once; one row more would be too much; one row is always kept."""
    model = model_of("bert-sequence")
    batches = batched(examples_for(model), 2)
    few = activations_of(model, batches, samples=5, gradients=gradients)
    distinct = {linear.inputs: few.inputs[name] for name, linear in few.maps.items()}
    widths = sum(len(tensor) for tensor in [*distinct.values(), *few.outputs.values(), *few.gradients.values()])
    for numbers, rows in ((5 * widths, 5), (6 * widths - 1, 5), (1, 1)):
        found = activations_of(model, batches, gradients=gradients, numbers=numbers)
        assert_equal(found, activations_of(model, batches, samples=rows, gradients=gradients))


def test_gradients_of_what_is_frozen_are_the_same() -> None:
    """Parameters that are not trained stay so, and change nothing."""
    model = model_of("bert-sequence")
    batches = batched(examples_for(model), 2)
    expected = activations_of(model, batches, samples=9, gradients=True)
    found = activations_of(model.requires_grad_(False), batches, samples=9, gradients=True)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    for name, gradient in expected.gradients.items():
        torch.testing.assert_close(found.gradients[name], gradient)


def _is_shared(model: nn.Module, parameter: Tensor) -> bool:
    owners = [m for m in model.modules() if any(own is parameter for own in m._parameters.values())]
    return len(owners) > 1 or isinstance(owners[0], nn.Embedding)
