"""What methods on singular vectors have in common: which parameters are matrices, isometries, changes of basis."""

from typing import Any

import pytest
import torch

from fusionlab.merging import merge_states
from fusionlab.merging.matrices import decompose, nearest_isometry
from tests.merging.near_base import adapted, changes_of, fine_tunes, mean_change, rotated

SPECTRAL: list[tuple[str, dict[str, Any]]] = [
    ("tsv_m", {}),
    ("iso_c", {"lambda_": 0.7}),
    ("iso_cts", {"common": 0.5}),
    ("wudi", {"solver": "exact"}),
]
METHODS = [*SPECTRAL, ("wudi", {"steps": 20, "learning_rate": 1e-2})]


@pytest.mark.parametrize(("method", "given"), SPECTRAL, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_merging_commutes_with_rotations(method: str, given: dict[str, Any], count: int) -> None:
    """In whatever basis twins are matched on either side of a matrix, the merge is the same model."""
    base, states = fine_tunes(count + 1)
    weights = [1.0, *([0.5] * count)]
    merged = merge_states(states, method, weights, base=base, **given)
    turned = merge_states([rotated(state) for state in states], method, weights, base=rotated(base), **given)
    for name, tensor in rotated(merged).items():
        torch.testing.assert_close(turned[name], tensor, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("method", "given"), SPECTRAL, ids=str)
@pytest.mark.parametrize("ranks", [[2, 2], [1, 2], [2, 0], [2, 2, 0]], ids=str)
def test_changes_of_small_rank(method: str, given: dict[str, Any], ranks: list[int]) -> None:
    """They commute with rotations, and no direction comes in that no model has, whoever left a matrix alone."""
    base, _ = fine_tunes(0)
    states = adapted(base, ranks)
    merged = merge_states(states, method, base=base, **given)
    turned = merge_states([rotated(state) for state in states], method, base=rotated(base), **given)
    for name, tensor in rotated(merged).items():
        torch.testing.assert_close(turned[name], tensor, rtol=0, atol=1e-10)
    for name in ("tall", "kernel"):
        changes = changes_of(base, states, name).flatten(2)
        span = torch.linalg.svd(torch.cat(list(changes), 1))[0][:, : sum(ranks)]
        found = (merged[name] - base[name]).flatten(1)
        assert found.norm() > 0.01
        assert (found - span @ (span.mT @ found)).norm() < 1e-10


@pytest.mark.parametrize("method", ["tsv_m", "iso_c", "iso_cts"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding_of_the_models_adds_no_directions(method: str, dtype: torch.dtype) -> None:
    """Two adapters of rank 4 on a base in a short type: the merge has 8 directions, not those of the rounding too.

    Also where the models were widened before they are merged, as merges of files do, or their base too.
    """
    generator = torch.Generator().manual_seed(0)
    base = {"w": torch.randn(64, 48, generator=generator).to(dtype)}
    for wide, wide_base in ((False, False), (True, False), (True, True)):
        states = [{"w": state["w"].double() if wide else state["w"]} for state in adapted(base, [4, 4], dtype)]
        given = {"w": base["w"].double()} if wide_base else base
        merged = merge_states(states, method, base=given)["w"].double() - base["w"].double()
        values = torch.linalg.svdvals(merged)
        assert (values > 0.1 * values[0]).sum() == 8
        if wide:
            assert (values > 1e-9 * values[0]).sum() == 8


def test_a_small_direction_of_a_tall_matrix_counts() -> None:
    """In float32, of 50,000 rows: a singular value of half a percent is no rounding."""
    left = torch.linalg.qr(torch.randn(50_000, 4, generator=torch.Generator().manual_seed(0))).Q
    change = left * torch.tensor([1.0, 0.005, 0.005, 0.005])
    base = {"w": torch.zeros(50_000, 4)}
    values = torch.linalg.svdvals(merge_states([{"w": change}] * 2, "iso_c", base=base)["w"])
    torch.testing.assert_close(values, torch.full((4,), 2 * 1.015 / 4), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("method", "given"), METHODS, ids=str)
def test_order_of_models(method: str, given: dict[str, Any]) -> None:
    """The models' order does not count where their weights go with them."""
    base, states = fine_tunes(4)
    weights = [0.1, 0.2, 0.3, 0.4]
    forwards = merge_states(states, method, weights, base=base, **given)
    backwards = merge_states(states[::-1], method, weights[::-1], base=base, **given)
    for name, tensor in forwards.items():
        torch.testing.assert_close(backwards[name], tensor, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("method", "given"), METHODS, ids=str)
def test_parameters_that_are_no_matrices_are_averaged(method: str, given: dict[str, Any]) -> None:
    """A stack, a vector and a number; a convolution is merged as the matrix that it applies to a patch."""
    base, states = fine_tunes(3)
    merged = merge_states(states, method, base=base, **given | {"lambda_": 1.0})
    for name in ("stack", "bias", "scale"):
        torch.testing.assert_close(merged[name], mean_change(base, states, name), rtol=0, atol=1e-13)
    flat = [{"kernel": state["kernel"].flatten(1)} for state in states]
    as_matrix = merge_states(flat, method, base={"kernel": base["kernel"].flatten(1)}, **given | {"lambda_": 1.0})
    torch.testing.assert_close(merged["kernel"].flatten(1), as_matrix["kernel"], rtol=0, atol=1e-13)
    assert (merged["kernel"] - mean_change(base, states, "kernel")).abs().max() > 1e-3


@pytest.mark.parametrize(("method", "given"), METHODS, ids=str)
def test_models_without_weight_take_no_part(method: str, given: dict[str, Any]) -> None:
    """Neither in the number of models nor in any basis."""
    base, states = fine_tunes(3)
    merged = merge_states(states, method, [1, 1, 0], base=base, **given)
    two = merge_states(states[:2], method, base=base, **given)
    for name, tensor in two.items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("method", "given"), METHODS, ids=str)
def test_nothing_changed(method: str, given: dict[str, Any]) -> None:
    """Models that are the base model, and parameters without numbers."""
    base, _ = fine_tunes(1)
    base["empty"] = torch.zeros(0, 4)
    merged = merge_states([dict(base), dict(base)], method, base=base, **given)
    assert all(torch.equal(merged[name], tensor) for name, tensor in base.items())


@pytest.mark.parametrize(("method", "given"), METHODS, ids=str)
def test_numbers_that_are_not_finite(method: str, given: dict[str, Any]) -> None:
    """They come out as such, so that whoever writes the merge refuses it by name."""
    base, states = fine_tunes(2)
    states[1]["tall"] = states[1]["tall"] * torch.nan
    assert not bool(merge_states(states, method, base=base, **given)["tall"].isfinite().all())


def test_nearest_isometry() -> None:
    """Of a full-rank matrix scipy's polar factor; of others zero where the matrix is."""
    matrix = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left, values, right = decompose(matrix)
    torch.testing.assert_close(left * values @ right, matrix, rtol=0, atol=1e-13)
    isometry = nearest_isometry(matrix)
    torch.testing.assert_close(isometry.mT @ isometry, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-13)
    symmetric = isometry.mT @ matrix
    torch.testing.assert_close(symmetric, symmetric.mT, rtol=0, atol=1e-13)
    doubled = nearest_isometry(torch.cat((matrix, matrix), 1))
    torch.testing.assert_close(doubled, torch.cat((isometry, isometry), 1) / 2**0.5, rtol=0, atol=1e-13)
    assert decompose(torch.zeros(3, 2))[1].shape == (0,)
