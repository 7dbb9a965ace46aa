"""The picture of a head in two bases shows what it says."""

import torch

from tests.site.head_rotation import heads, matched, mean, scores


def test_the_picture_says_what_is_so() -> None:
    """One function in two bases; the plain mean is another, and the mean after matching is the same again."""
    first, second = heads()
    assert not torch.allclose(first[0], second[0])
    torch.testing.assert_close(scores(second), scores(first))
    assert scores(mean(first, second)).norm() < 0.3 * scores(first).norm()
    twin = matched(second, first)
    torch.testing.assert_close(scores(twin), scores(second))
    torch.testing.assert_close(scores(mean(first, twin)), scores(first))
