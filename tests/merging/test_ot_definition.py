"""Optimal transport of hidden units against the definition, worked out by hand."""

import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fusionlab.merging import merge_states
from fusionlab.symmetry import blueprint
from tests.merging.transported import EXACT, case, worst
from tests.statistics.passes import activations_of, batched, examples_for, inputs_by_hand
from tests.symmetry.models import generator, random_model


def test_hidden_units_as_the_definition_says():
    """A bare encoder's feed-forward layer: scipy's assignment on distances of unit-length rows with their bias."""
    first, second = (random_model("bert-model", seed).state_dict() for seed in (0, 1))
    description = blueprint(random_model("bert-model"))
    merged = merge_states([first, second], "ot", weights=[0.25, 0.75], blueprint=description, **EXACT)
    at = "encoder.layer.0"
    up, bias, down = (f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight")
    rows = [torch.cat([state[up], state[bias][:, None]], 1) for state in (first, second)]
    rows = [part / part.norm(dim=1, keepdim=True) for part in rows]
    _, order = linear_sum_assignment(cdist(*(part.numpy() for part in rows)))
    torch.testing.assert_close(merged[up], 0.25 * first[up] + 0.75 * second[up][order])
    torch.testing.assert_close(merged[bias], 0.25 * first[bias] + 0.75 * second[bias][order])
    torch.testing.assert_close(merged[down], 0.25 * first[down] + 0.75 * second[down][:, order])


def test_hidden_units_from_activations_as_the_definition_says():
    """The same from what both models' units are before the activation, for every token that counts: centred, of length
    one."""
    models = [random_model("bert-model", seed) for seed in (0, 1)]
    examples = examples_for(models[0], 12)
    first, second = (model.state_dict() for model in models)
    merged = merge_states(
        [first, second],
        "ot",
        weights=[0.25, 0.75],
        blueprint=blueprint(models[0]),
        statistics=[{"activations": activations_of(model, batched(examples, 5))} for model in models],
        features="activations",
        **EXACT,
    )
    at = "encoder.layer.0"
    up, bias, down = (f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight")
    rows = []
    for model in models:
        units = inputs_by_hand(model, examples, lambda value, example: True)[up] @ model.get_parameter(up).detach().mT
        units = units.mT - units.mT.mean(1, keepdim=True)
        rows.append(units / units.norm(dim=1, keepdim=True))
    _, order = linear_sum_assignment(cdist(*(part.numpy() for part in rows)))
    torch.testing.assert_close(merged[up], 0.25 * first[up] + 0.75 * second[up][order])
    torch.testing.assert_close(merged[bias], 0.25 * first[bias] + 0.75 * second[bias][order])
    torch.testing.assert_close(merged[down], 0.25 * first[down] + 0.75 * second[down][:, order])


def test_averaging_policy_halves_the_map_at_every_layer():
    """Identical models but for the order of what the last layer adds to the stream: only what comes later feels it.

    The first map is the identity; the last writer's own map is the order P, and what reads the stream after it is moved
    by the mean of both.
    """
    _, state, description = case("vit-classifier", True)
    order = torch.randperm(24, generator=generator(4))
    other = dict(state)
    for name in ("vit.layers.1.mlp.fc2.weight", "vit.layers.1.mlp.fc2.bias"):
        other[name] = state[name][order]
    merged = {
        policy: merge_states([state, other], "ot", weights=[0, 1], blueprint=description, residual=policy, **EXACT)
        for policy in ("first", "last", "mean")
    }
    assert torch.equal(merged["first"]["classifier.weight"], state["classifier.weight"])
    assert (
        worst({"x": merged["first"]["vit.layers.1.mlp.fc2.weight"]}, {"x": other["vit.layers.1.mlp.fc2.weight"]}) == 0
    )
    for policy in ("last", "mean"):
        torch.testing.assert_close(merged[policy]["vit.layers.1.mlp.fc2.weight"], state["vit.layers.1.mlp.fc2.weight"])
        before = "vit.layers.1.mlp.fc1.weight"
        torch.testing.assert_close(merged[policy][before], state[before])
    inverse = order.argsort()
    moved = state["classifier.weight"][:, inverse]
    torch.testing.assert_close(merged["last"]["classifier.weight"], moved)
    torch.testing.assert_close(merged["mean"]["classifier.weight"], (moved + state["classifier.weight"]) / 2)
