"""Learned refinement assigns hidden units and heads again, of the models as they are by then."""

import copy

import pytest
import torch

from fusionlab.learning.distillation import output_of
from fusionlab.learning.points import at_point
from fusionlab.matching import learned, twins
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import run
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.roles import Role
from tests.matching.refining import folded, gpt2, inputs, quiet, refined, turned
from tests.symmetry.infer.cases import BY_NAME
from tests.symmetry.models import generator, random_model, randomize


def test_hidden_units_are_assigned_again():
    """Units that were shuffled between two assignments come back, which no gradient could do."""
    model = random_model("vit-classifier")
    description = folded(model)
    draw = generator(3)
    orders = {n: s.group.random(s.copies, draw) for n, s in description.spaces.items() if s.role in ("ffn", "heads")}
    shuffled = Alignment(description, orders)
    models = [model, shuffled.apply(model)]
    found = refined(models, inputs(model, 2), steps=3, every=1, learning_rate=1e-6)
    expected = shuffled.inverse()
    for name in orders:
        assert torch.equal(found[1].element(name), expected.element(name)), name
    kept = refined(models, inputs(model, 2), steps=3, every=0, learning_rate=1e-6)
    for name in orders:
        assert isinstance(description.spaces[name].group, Permutation)
        assert torch.equal(kept[1].element(name), description.spaces[name].group.identity()), name


def test_assigning_again_starts_from_the_order_that_the_stream_has():
    """Tied GPT-2: of the stream's order only hidden units tell anything, and of those three are out of place."""
    model = randomize(gpt2(), seed=0)
    description = folded(model)
    other, draw = copy.deepcopy(model), generator(5)
    with torch.no_grad():
        for name, parameter in (*model.named_parameters(), *other.named_parameters()):
            if ".ln_" in name:
                parameter.fill_(float(name.endswith("weight")))
        for name, parameter in other.named_parameters():
            if ".ln_" not in name and not name.endswith(("mlp.c_fc.weight", "mlp.c_proj.weight")):
                size = (0.1 if ".attn." in name else 1.0) * parameter.std()
                parameter.copy_(size * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
    orders = {}
    for name, space in description.spaces.items():
        if space.role == "ffn":
            orders[name] = space.group.identity()
            orders[name][:3] = orders[name][:3].roll(1)
    shuffled = Alignment(description, orders)
    models = [model, shuffled.apply(other)]
    found = refined(models, inputs(model, 2, batch=4), steps=3, every=1, batch_size=4, learning_rate=1e-6)
    expected = shuffled.inverse()
    assert isinstance(description.spaces["residual"].group, Permutation)
    for name in ("residual", *orders):
        assert torch.equal(found[1].element(name), expected.element(name)), name


def test_units_of_experts_that_keep_their_order_are_assigned_again():
    """A mixture in which all is matched but its experts: what counts their copies is no space of the assignment."""
    sample = BY_NAME["mixtral"]
    model = randomize(sample.build(), 0)
    description, draw = folded(model), generator(3)
    spaces = [space for space in description.spaces.values() if space.role != Role.EXPERTS]
    orders = {s.name: s.group.random(s.copies, draw) for s in spaces if s.role == Role.UNITS}
    shuffled = Alignment(description, orders)
    start = [Alignment.identity(description)] * 2
    options = RefineOptions(steps=3, every=1, learning_rate=1e-6)
    stage = learned.refined([model, shuffled.apply(model)], description, start, inputs(model, 2), options, 0, spaces)
    found, expected = run(stage, quiet), shuffled.inverse()
    assert all(len(expected.element(name)) == 5 for name in orders)
    for name in orders:
        assert torch.equal(found[1].element(name), expected.element(name)), name


def test_what_a_router_keeps_in_buffers_moves_with_the_experts():
    """DeepSeek-V3 chooses experts by corrections that no gradient reaches; half way they are in the twins' order."""
    sample = BY_NAME["deepseek_v3"]
    model = randomize(sample.build(), 0)
    description, draw = folded(model), generator(3)
    corrections = [name for name, _ in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for name in corrections:
        buffer = model.get_buffer(name)
        buffer.copy_(torch.randn(buffer.shape, generator=draw))
    orders = {s.name: s.group.random(s.copies, draw) for s in description.spaces.values() if s.role == Role.EXPERTS}
    shuffled = Alignment(description, orders)
    models = [shuffled.apply(model), model]
    found = refined(models, inputs(model, 2), anchor=1, steps=3, every=1, learning_rate=1e-6)
    for name in orders:
        assert torch.equal(found[0].element(name), shuffled.inverse().element(name)), name
    (middle,) = twins.Twins(models, found, 1).mixtures([[0.5, 0.5]])
    assert corrections
    assert all(torch.allclose(middle[name], model.get_buffer(name)) for name in corrections)
    (batch,) = inputs(model, 1)
    assert torch.allclose(at_point(models[0], middle, output_of, batch), output_of(model, batch), atol=1e-5)


def test_units_are_assigned_again_beside_running_statistics():
    """RegNet: what lies half way has none, so that an assignment looks at parameters alone."""
    sample = BY_NAME["regnet"]
    model = randomize(sample.build(), 0)
    description, draw = folded(model), generator(3)
    units = [space for space in description.spaces.values() if space.role == Role.UNITS]
    orders = {s.name: s.group.random(s.copies, draw) for s in units if isinstance(s.group, Permutation)}
    shuffled = Alignment(description, orders)
    found = refined([model, shuffled.apply(model)], inputs(model, 2), steps=3, every=1, learning_rate=1e-6)
    assert orders
    for name in orders:
        assert torch.equal(found[1].element(name), shuffled.inverse().element(name)), name


def test_an_assignment_that_raises_the_loss_is_taken_back(monkeypatch: pytest.MonkeyPatch):
    """A model beside its copy, a little turned: no other order is better, and coordinates come back to their heads."""
    model = random_model("vit-classifier")
    description, draw, proposed = folded(model), generator(3), []
    models = [model, turned(description, 0.1).apply(model)]

    def propose(*_: object) -> Alignment:
        chosen = [s for s in description.spaces.values() if isinstance(s.group, Permutation)]
        proposed.append(Alignment(description, {s.name: s.group.random(s.copies, draw) for s in chosen}))
        return proposed[-1]

    options = {"steps": 4, "every": 1, "learning_rate": 1e-3}
    expected = refined(models, inputs(model, 2), **{**options, "every": 0})
    monkeypatch.setattr(twins, "match_weights", propose)
    found = refined(models, inputs(model, 2), **options)
    assert len(proposed) == 3
    inside = [name for name, space in description.spaces.items() if space.index]
    assert all(expected[1].element(name)[0].sub(expected[1].element(name)[1]).abs().max() > 1e-4 for name in inside)
    for name in description.spaces:
        assert torch.equal(found[1].element(name), expected[1].element(name)), name
