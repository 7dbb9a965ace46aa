"""Model Stock: how far to go from the base model to the mean, by the angles between task vectors."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.random_states import random_states


def around(count: int, cosine: float) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """A base model and models whose task vectors are unit vectors with one cosine between any two."""
    base = torch.linspace(-1, 1, count + 1, dtype=torch.float64)
    vectors = [math.sqrt(cosine) * torch.eye(count + 1, dtype=torch.float64)[count] for _ in range(count)]
    for index, vector in enumerate(vectors):
        vector[index] += math.sqrt(1 - cosine)
    return {"w": base}, [{"w": base + vector} for vector in vectors]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("cosine", [0.0, 0.3, 1.0])
def test_the_papers_ratio(count: int, cosine: float) -> None:
    """``N cos / (1 + (N - 1) cos)`` of the way."""
    base, states = around(count, cosine)
    merged = merge_states(states, "stock", base=base)["w"]
    t = count * cosine / (1 + (count - 1) * cosine)
    mean = sum(state["w"] for state in states) / count
    torch.testing.assert_close(merged, t * mean + (1 - t) * base["w"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.6, 0.3, 0.1]])
def test_nearest_point_to_the_centre(weights: list[float]) -> None:
    """Of all points between base and (weighted) mean, no other is nearer to what the task vectors have in common."""
    base, states = around(3, 0.4)
    centre = base["w"] + math.sqrt(0.4) * torch.eye(4, dtype=torch.float64)[3]
    merged = merge_states(states, "stock", weights, base=base)["w"]
    mean = merge_states(states, "simple", weights)["w"]
    distances = [
        float((base["w"] + t * (mean - base["w"]) - centre).norm()) for t in torch.linspace(0, 1, 1001).tolist()
    ]
    assert float((merged - centre).norm()) <= min(distances) + 1e-12


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.5, 0.3, 0.2]])
def test_pairs_count_by_the_product_of_their_weights(weights: list[float]) -> None:
    """Cosines that differ from pair to pair: their mean, written out over all pairs of two models."""
    base, *states = random_states(4)
    common = torch.randn(8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    states = [{"w": base["w"] + 0.3 * state["w"] + 0.3 * index * common} for index, state in enumerate(states)]
    shares = [weight / sum(weights) for weight in weights]
    vectors = [state["w"] - base["w"] for state in states]
    total = mass = 0.0
    cosines = []
    for i, j in itertools.combinations(range(3), 2):
        cosines.append(float((vectors[i] * vectors[j]).sum() / vectors[i].norm() / vectors[j].norm()))
        total += shares[i] * shares[j] * cosines[-1]
        mass += shares[i] * shares[j]
    assert max(cosines) - min(cosines) > 0.1
    rho = total / mass
    t = rho / (rho + (1 - rho) * sum(share**2 for share in shares))
    expected = base["w"] + t * sum(share * vector for share, vector in zip(shares, vectors, strict=True))
    merged = merge_states(states, "stock", weights, base={"w": base["w"]})["w"]
    torch.testing.assert_close(merged, expected, rtol=0, atol=1e-12)


def test_every_parameter_has_its_own_ratio() -> None:
    """One that all models changed alike is the mean, one they changed against each other the base."""
    base, first = random_states(2)
    second = {"w": first["w"], "b": 2 * base["b"] - first["b"], "scale": base["scale"]}
    first["scale"] = base["scale"]
    merged = merge_states([first, second], "stock", base=base)
    torch.testing.assert_close(merged["w"], first["w"], rtol=0, atol=1e-14)
    assert torch.equal(merged["b"], base["b"])
    assert torch.equal(merged["scale"], base["scale"])


def test_bad_input() -> None:
    """An angle needs two models."""
    base, *states = random_states(3)
    with pytest.raises(InputError, match="needs the base model"):
        merge_states(states, "stock")
    with pytest.raises(InputError, match="two weights above 0"):
        merge_states(states, "stock", [1, 0], base=base)
