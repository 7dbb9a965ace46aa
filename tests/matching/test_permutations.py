"""Matching by permutations alone: Git Re-Basin and OT fusion, against scipy and against trying all."""

import itertools
from dataclasses import replace

import numpy
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from fusionlab.matching.permutations import PermutationOptions, match_permutations
from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Alignment, Blueprint, Space, blueprint
from fusionlab.symmetry.axes import Along, Fixed, Per
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.models import generator, outputs, random_model, relative

METRICS = ("euclidean", "sqeuclidean", "cosine")


def permuting(description, seed: int) -> Alignment:
    """A random permutation of every space that admits one."""
    draw = generator(seed)
    elements = {}
    for name, space in description.spaces.items():
        if isinstance(space.group, Permutation | Invertible):
            order = Permutation(space.group.size).random(space.copies, draw)
            identity = torch.eye(space.group.size, dtype=torch.float64)
            elements[name] = order if isinstance(space.group, Permutation) else identity[order]
    return Alignment(description, elements)


MODELS = [("bert-sequence", False), ("vit-classifier", False), ("vit-classifier", True), ("timm-plain", True)]


@pytest.mark.parametrize("objective", ["inner", *METRICS])
@pytest.mark.parametrize(("name", "folded"), MODELS)
def test_planted_permutations_are_recovered(name, folded, objective):
    """Stream, heads, inside heads and hidden units permuted: the twin comes back to distance zero."""
    anchor = random_model(name)
    description = blueprint(anchor, folded=folded)
    goal = fold(anchor.state_dict(), description) if folded else anchor.state_dict()
    source = permuting(description, 3).apply(goal)
    assert squared_distance(source, goal) > 1
    found = match_permutations(source, goal, description, PermutationOptions(spaces=("all",), objective=objective))
    assert squared_distance(found.apply(source), goal) < 1e-20


@pytest.mark.parametrize("objective", ["inner", "euclidean"])
@pytest.mark.parametrize(("name", "folded"), MODELS)
def test_function_is_kept_by_permutations(name, folded, objective):
    """Independent models: the twin computes the same, its elements are permutations, and weights do not move away."""
    source, anchor = random_model(name, 0), random_model(name, 1)
    description = blueprint(anchor, folded=folded)
    found = match_permutations(
        *(fold(m.state_dict(), description) if folded else m.state_dict() for m in (source, anchor)),
        description,
        PermutationOptions(spaces=("all",), objective=objective),
    )
    assert found.elements
    twin = found.apply(source)
    assert relative(outputs(twin), outputs(source)) < 1e-9
    for space, element in found.elements.items():
        group = description.spaces[space].group
        assert group.check(element, description.spaces[space].copies) is None
        if not isinstance(group, Permutation):
            assert set(element.unique().tolist()) == {0.0, 1.0}
    before = [fold(m.state_dict(), description) if folded else m.state_dict() for m in (source, anchor)]
    assert squared_distance(found.apply(before[0]), before[1]) < squared_distance(*before)


def test_git_re_basin_of_one_layer_is_the_assignment():
    """Hidden units of an uncoupled layer: scipy's assignment on summed inner products of weights and bias."""
    source, anchor = (random_model("bert-sequence", seed).state_dict() for seed in (0, 1))
    description = blueprint(random_model("bert-sequence"))
    found = match_permutations(source, anchor, description, PermutationOptions(spaces=("ffn",)))
    at = "bert.encoder.layer.1"
    up, bias, down = (f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight")
    gains = anchor[up] @ source[up].T + torch.outer(anchor[bias], source[bias]) + anchor[down].T @ source[down]
    _, order = linear_sum_assignment(gains.numpy(), maximize=True)
    assert found.elements["layers.1.ffn"].tolist() == order.tolist()


UP = "intermediate.dense.weight"


def unit_rows(state: dict[str, Tensor], names: tuple[str, ...]) -> numpy.ndarray:
    """What writes to the hidden units and what reads them, side by side: a row for each unit."""
    return torch.cat([state[name] if name.endswith(UP) else state[name].T for name in names], 1).numpy()


@pytest.mark.parametrize("objective", METRICS)
def test_ot_fusion_of_one_layer_is_scipys_assignment_of_directions(objective):
    """Units of very different lengths: the ground metric between units divided by their length, summed, is least."""
    source, anchor = (dict(random_model("bert-sequence", seed).state_dict()) for seed in (0, 1))
    description = blueprint(random_model("bert-sequence"))
    at = "bert.encoder.layer.1"
    bias, names = f"{at}.intermediate.dense.bias", (f"{at}.{UP}", f"{at}.output.dense.weight")
    for state in (source, anchor):
        loud = torch.randn(len(state[bias]), generator=generator(4), dtype=torch.float64).exp()
        state[names[0]] = loud[:, None] * state[names[0]]
        state[bias] = torch.zeros_like(state[bias])
    options = PermutationOptions(spaces=("ffn",), layers="1", objective=objective)
    found = match_permutations(source, anchor, description, options)
    rows = [unit_rows(state, names) for state in (anchor, source)]
    anchored, moved = (x / numpy.linalg.norm(x, axis=1, keepdims=True) for x in rows)
    _, order = linear_sum_assignment(cdist(anchored, moved, objective))
    assert found.elements["layers.1.ffn"].tolist() == order.tolist()
    inner = match_permutations(source, anchor, description, replace(options, objective="inner")).elements[
        "layers.1.ffn"
    ]
    assert inner.tolist() != order.tolist()


@pytest.mark.parametrize("objective", ["inner", *METRICS])
@pytest.mark.parametrize("seed", range(3))
def test_heads_and_the_units_inside_them_are_the_best_of_all(objective, seed):
    """Every permutation of heads, with the best one inside each pair of them: by scipy, from the weights themselves.

    In each of two groups of heads, whose own order stays.
    """
    groups, heads, size = 2, 3, 3
    spaces = {
        "groups": Space("groups", Permutation(groups), "groups"),
        "heads": Space("heads", Permutation(heads), "heads", index=("groups",), copies=(groups,)),
        "qk": Space("qk", Invertible(size), "qk", index=("groups", "heads"), copies=(groups, heads)),
    }
    axis = Per("groups", groups, Per("heads", heads, Along("qk", size)))
    description = Blueprint("heads", spaces, {"query": (axis, Fixed(5)), "key": (axis.dual(), Fixed(4))})
    draw, units = generator(seed), groups * heads * size
    loud = torch.randn(2, units, 1, generator=draw, dtype=torch.float64).exp()
    source, anchor = (
        {name: x * torch.randn(units, width, generator=draw, dtype=torch.float64) for name, width in
         (("query", 5), ("key", 4))}
        for x in loud
    )  # fmt: skip
    options = PermutationOptions(spaces=("heads", "qk"), objective=objective)
    found = match_permutations(source, anchor, description, options)
    rows = [torch.cat([s["query"], s["key"]], 1).unflatten(0, (groups, heads, size)).numpy() for s in (anchor, source)]

    def cost(group: int, here: int, there: int) -> numpy.ndarray:
        anchored, moved = rows[0][group, here], rows[1][group, there]
        if objective == "inner":
            return -anchored @ moved.T
        first, second = (x / numpy.linalg.norm(x, axis=1, keepdims=True) for x in (anchored, moved))
        return cdist(first, second, objective)

    for group in range(groups):
        best = {}
        for order in itertools.permutations(range(heads)):
            costs = [cost(group, here, there) for here, there in enumerate(order)]
            inside = [linear_sum_assignment(c) for c in costs]
            total = sum(c[place].sum() for c, place in zip(costs, inside, strict=True))
            best[order] = (total, [columns.tolist() for _, columns in inside])
        order = min(best, key=lambda o: best[o][0])
        assert tuple(found.element("heads")[group].tolist()) == order
        assert found.element("qk")[group].argmax(-1).tolist() == best[order][1]
