"""Weight matching against the paper's formulas, and against every permutation of heads there is."""

import itertools

import pytest
import torch
from torch import Tensor

from fusionlab.matching.options import MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, blueprint
from tests.matching.pairs import NAME, State, distance, pair
from tests.symmetry.models import HEAD_DIM, HEADS, random_model, rigid

# The paper's formulas


def head_rows(state: State, name: str, layer: int = 0) -> Tensor:
    """One projection's weight with its bias as a further column, shape ``(heads, head_dim, hidden + 1)``."""
    at = f"bert.encoder.layer.{layer}.attention"
    if name == "output":
        return state[f"{at}.output.dense.weight"].T.unflatten(0, (HEADS, HEAD_DIM))
    weight, bias = state[f"{at}.self.{name}.weight"], state[f"{at}.self.{name}.bias"]
    return torch.cat([weight, bias[:, None]], 1).unflatten(0, (HEADS, HEAD_DIM))


def test_rotation_is_the_papers_algorithm_1():
    """R = U V^T of W_Q1 W_Q2^T + b_Q1 b_Q2^T + W_K1 W_K2^T + b_K1 b_K2^T; then W <- R^T W and b <- b R."""
    source, anchor, description = pair()
    first, second = source.state_dict(), anchor.state_dict()
    found = match_weights(first, second, description, MatchOptions(spaces=("attention",), rescale="off"))
    twin = found.apply(first)
    at = "bert.encoder.layer.0.attention"
    for head in range(HEADS):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)

        def term(name: str, rows: slice = rows) -> Tensor:
            w1, w2 = (s[f"{at}.self.{name}.weight"][rows] for s in (first, second))
            b1, b2 = (s[f"{at}.self.{name}.bias"][rows] for s in (first, second))
            return w1 @ w2.T + b1[:, None] @ b2[None]

        u, _, vh = torch.linalg.svd(term("query") + term("key"))
        r = u @ vh
        for name in ("query", "key"):
            weight, bias = f"{at}.self.{name}.weight", f"{at}.self.{name}.bias"
            torch.testing.assert_close(twin[weight][rows], r.T @ first[weight][rows])
            torch.testing.assert_close(twin[bias][rows], first[bias][rows] @ r)
        out = f"{at}.output.dense.weight"
        u, _, vh = torch.linalg.svd(term("value") + first[out][:, rows].T @ second[out][:, rows])
        r = u @ vh
        torch.testing.assert_close(twin[out][:, rows], first[out][:, rows] @ r)
        value = f"{at}.self.value.weight"
        torch.testing.assert_close(twin[value][rows], r.T @ first[value][rows])


def test_biases_decide_where_weights_do_not():
    """Weights that leave most rotations tied: what the biases say recovers the model, weights alone do not."""
    anchor, _, description = pair()
    goal = dict(anchor.state_dict())
    at = "bert.encoder.layer.0.attention.self"
    shared = [f"{at}.query.weight", f"{at}.key.weight"]
    for name in shared:
        # All but two directions of every head are empty, except for the bias.
        kept = goal[name].clone().unflatten(0, (HEADS, HEAD_DIM))
        kept[:, 2:] = 0
        goal[name] = kept.flatten(0, 1)
    planted = rigid(description, seed=3, names=("attention.qk",))
    planted = Alignment(description, {"layers.0.qk": planted.elements["layers.0.qk"]})
    source = planted.apply(goal)
    options = MatchOptions(spaces=("attention.qk",), layers="0", rescale="off")
    with_biases = match_weights(source, goal, description, options).apply(source)
    blind = {n: torch.zeros_like(x) if n.startswith(at) and n.endswith("bias") else x for n, x in source.items()}
    without_biases = match_weights(blind, goal, description, options).apply(source)
    names = [*shared, f"{at}.query.bias", f"{at}.key.bias"]
    assert distance({n: without_biases[n] for n in shared}, {n: goal[n] for n in shared}) < 1e-10
    assert squared_distance(without_biases, goal, names) > 0.1
    assert squared_distance(with_biases, goal, names) < 1e-20


# Heads


def permuted_and_rotated(first: State, second: State, order: tuple[int, ...]) -> float:
    """What is gained by sending head order[i] to place i and rotating each best: summed nuclear norms."""
    total = 0.0
    for here, there in enumerate(order):
        for one, other in (("query", "key"), ("value", "output")):
            sides = [head_rows(second, n)[here] @ head_rows(first, n)[there].T for n in (one, other)]
            total += float(torch.linalg.matrix_norm(sides[0] + sides[1], "nuc"))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_heads_and_their_rotations_are_the_joint_optimum(seed):
    """Against every one of the H! permutations, with Procrustes inside each."""
    first, second = (random_model(NAME, seed=s).state_dict() for s in (10 + seed, 20 + seed))
    description = blueprint(random_model(NAME))
    options = MatchOptions(spaces=("heads", "attention"), layers="0", rescale="off")
    found = match_weights(first, second, description, options)
    before, after = squared_distance(first, second), squared_distance(found.apply(first), second)
    gains = {order: permuted_and_rotated(first, second, order) for order in itertools.permutations(range(HEADS))}
    best = max(gains, key=lambda order: gains[order])
    unmoved = sum(
        float((head_rows(first, n) * head_rows(second, n)).sum()) for n in ("query", "key", "value", "output")
    )
    assert before - after == pytest.approx(2 * (gains[best] - unmoved), rel=1e-9)
    assert tuple(found.element("layers.0.heads").tolist()) == best


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("roles", [("heads",), ("heads", "attention.qk"), ("heads", "attention.vo")])
def test_heads_with_some_or_no_rotations_are_the_best_permutation(seed, roles):
    """Each of the H! permutations is applied, what may rotate is rotated, and none ends up closer."""
    first, second = (random_model(NAME, seed=s).state_dict() for s in (30 + seed, 40 + seed))
    description = blueprint(random_model(NAME))
    options = MatchOptions(spaces=roles, layers="1", rescale="joint")
    found = match_weights(first, second, description, options).apply(first)
    inner = MatchOptions(spaces=roles[1:], layers="1", rescale="joint")
    rivals = []
    for order in itertools.permutations(range(HEADS)):
        moved = Alignment(description, {"layers.1.heads": torch.tensor(order)}).apply(first)
        rivals.append(distance(match_weights(moved, second, description, inner).apply(moved), second))
    assert distance(found, second) == pytest.approx(min(rivals), rel=1e-9)
