"""One split is not both chosen on and measured on, unless all three are one."""

import pytest

from fusionlab.data.splits import Splits, refuse_wrong_splits
from fusionlab.errors import InputError


def test_a_split_that_settings_are_chosen_on_is_not_measured_on() -> None:
    names = {"train": "train", "val": "validation", "test": "validation"}
    with pytest.raises(InputError, match=r"data\.val_split and data\.test_split are both 'validation'; expected two"):
        refuse_wrong_splits(Splits(names))
    for allowed in (
        Splits(names, test_on_all=True),
        Splits({**names, "test": "test"}),
        Splits({"train": "train", "val": None, "test": None}),
        Splits(dict.fromkeys(names, "train")),
    ):
        refuse_wrong_splits(allowed)
