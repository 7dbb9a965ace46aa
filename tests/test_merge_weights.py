"""One weight for each model, summing to 1."""

import pytest

from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights


def test_weights_keep_their_ratio_and_sum_to_one() -> None:
    assert merge_weights([3, 1, 0], 3) == [0.75, 0.25, 0.0]
    assert merge_weights(None, 4) == [0.25] * 4


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "1 numbers for 2 models"),
        ([1.0, -0.5], "from 0 up"),
        ([0.0, 0.0], "above 0"),
        ([1.0, float("nan")], "from 0 up"),
        ([1.0, float("inf")], "from 0 up"),
    ],
)
def test_weights_that_are_none(weights: list[float], message: str) -> None:
    """Refused with what was expected."""
    with pytest.raises(InputError, match=message):
        merge_weights(weights, 2)
