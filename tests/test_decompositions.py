"""Decompositions are those of the matrix, whichever of LAPACK's ways found them."""

import pytest
import torch

from fusionlab.decompositions import svd


def _give_up(*_: object, **__: object) -> None:
    raise torch.linalg.LinAlgError("The algorithm failed to converge")


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4, 6), (7, 7)])
@pytest.mark.parametrize("full", [True, False])
def test_where_torch_gives_up_the_factors_are_the_same(shape, full, monkeypatch):
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = svd(matrix, full)
    monkeypatch.setattr(torch.linalg, "svd", _give_up)
    u, s, vh = svd(matrix, full)
    assert (u.shape, vh.shape) == (wanted[0].shape, wanted[2].shape)
    torch.testing.assert_close(s, wanted[1])
    rank = s.shape[-1]
    torch.testing.assert_close(u[..., :rank] * s[..., None, :] @ vh[..., :rank, :], matrix)


def test_numbers_that_are_not_finite_are_refused(monkeypatch):
    monkeypatch.setattr(torch.linalg, "svd", _give_up)
    with pytest.raises(torch.linalg.LinAlgError):
        svd(torch.full((2, 2), float("nan")))
