"""Coordinates of all spaces of several models: elements of every group, moved along with permutations."""

import torch

from fusionlab.matching.charts import Charts
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.blueprints import nested_blueprint, nested_state
from tests.symmetry.models import generator, random_model


def test_charts_of_a_model_give_elements_of_every_continuous_space():
    """Float64 elements that the blueprint's groups accept, one set for each model, different ones."""
    description = blueprint(random_model("vit-classifier")).after_folding
    assert description is not None
    charts = Charts(description, tuple(description.spaces.values()), 2)
    with torch.no_grad():
        for parameter in charts.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator(3)))
    first, second = charts.elements(torch.float64)
    continuous = {n for n, s in description.spaces.items() if not isinstance(s.group, Permutation)}
    assert first.keys() == second.keys() == continuous
    for name in continuous:
        space = description.spaces[name]
        assert space.group.check(first[name], space.copies) is None
        assert (first[name] - second[name]).abs().max() > 0.01


def test_permuting_coordinates_is_permuting_before_the_charts():
    """Charts after a permutation, moved along with it, do what the permutation does after them; so do the moments."""
    description, state = nested_blueprint(), nested_state()
    charts = Charts(description, tuple(description.spaces.values()), 2).double()
    with torch.no_grad():
        for parameter in charts.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(4), dtype=torch.float64))
    optimizer = torch.optim.Adam(charts.parameters())
    for parameter in charts.parameters():
        parameter.grad = parameter.detach().clone()
    optimizer.step()
    draw = generator(5)
    orders = {n: s.group.random(s.copies, draw) for n, s in description.spaces.items() if s.group.name == "S"}
    permutation = Alignment(description, orders)
    before = [Alignment(description, elements) for elements in charts.elements()]
    untouched = charts.coordinates[0][0].clone()
    charts.permute(1, orders, optimizer)
    after = [Alignment(description, elements) for elements in charts.elements()]
    expected = permutation.apply(before[1].apply(state))
    found = after[1].apply(permutation.apply(state))
    for name in state:
        torch.testing.assert_close(found[name], expected[name])
    assert torch.equal(charts.coordinates[0][0], untouched)
    for parameter in charts.parameters():
        # After one step the first moment is a tenth of the gradient, which was the coordinate itself.
        moment = optimizer.state[parameter]["exp_avg"]
        assert torch.allclose(moment * 10, parameter, atol=2e-3)
