"""TSV-M: singular directions of each model, made orthogonal to those of the others."""

import numpy as np
import pytest
import scipy.linalg
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes, mean_change


def by_hand(changes: np.ndarray, weights: list[float]) -> np.ndarray:
    """The paper's algorithm for one matrix, by numpy, with scipy's polar decomposition in place of Procrustes."""
    rank = max(1, min(changes.shape[1:]) // len(changes))
    lefts, values, rights = [], [], []
    for change, weight in zip(changes, weights, strict=True):
        left, spectrum, right = np.linalg.svd(change, full_matrices=False)
        lefts.append(left[:, :rank])
        values.append(len(changes) * weight * spectrum[:rank])
        rights.append(right[:rank])
    left, right = (scipy.linalg.polar(basis)[0] for basis in (np.concatenate(lefts, 1), np.concatenate(rights, 0)))
    return left @ np.diag(np.concatenate(values)) @ right


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("unequal", [False, True])
def test_equals_the_algorithm(count: int, unequal: bool) -> None:
    """For any number of models and any weights."""
    base, states = fine_tunes(count)
    weights = [float(1 + unequal * place) for place in range(count)]
    shares = [weight / sum(weights) for weight in weights]
    merged = merge_states(states, "tsv_m", weights, base=base, lambda_=0.8)
    for name in ("tall", "wide"):
        expected = base[name] + 0.8 * torch.from_numpy(by_hand(changes_of(base, states, name).numpy(), shares))
        torch.testing.assert_close(merged[name], expected, rtol=0, atol=1e-12)


def test_orthogonal_task_vectors_add_up() -> None:
    """Models that share no direction: the sum of their largest parts, nothing lost to the others."""
    left, right = torch.eye(6, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    changes = [torch.outer(left[i], right[i]) + torch.outer(left[i + 2], right[i + 2]) for i in (0, 1)]
    base = {"w": torch.zeros(6, 4, dtype=torch.float64)}
    merged = merge_states([{"w": change} for change in changes], "tsv_m", base=base)["w"]
    torch.testing.assert_close(merged, changes[0] + changes[1], rtol=0, atol=1e-14)


def test_equal_models_give_the_largest_singular_values() -> None:
    """Two equal models: the best approximation of their task vector by half of its rank."""
    base, (state,) = fine_tunes(1)
    merged = merge_states([state, dict(state)], "tsv_m", base=base)
    left, values, right = torch.linalg.svd(state["tall"] - base["tall"], full_matrices=False)
    expected = base["tall"] + left[:, :3] * values[:3] @ right[:3]
    torch.testing.assert_close(merged["tall"], expected, rtol=0, atol=1e-13)


def test_more_models_than_directions() -> None:
    """Each keeps one direction: more of them than there is room for are made as orthogonal as they can be."""
    base, states = fine_tunes(9)
    merged = merge_states(states, "tsv_m", base=base)
    expected = by_hand(changes_of(base, states, "wide").numpy(), [1 / 9] * 9)
    torch.testing.assert_close(merged["wide"] - base["wide"], torch.from_numpy(expected), rtol=0, atol=1e-12)
    torch.testing.assert_close(merged["bias"], mean_change(base, states, "bias"), rtol=0, atol=1e-13)


def test_needs_a_base() -> None:
    """Said in one sentence."""
    with pytest.raises(InputError, match="merge method 'tsv_m' needs the base model"):
        merge_states(fine_tunes(2)[1], "tsv_m")
