"""Commands print no warning that a user cannot act on."""

import warnings

from torchmetrics.regression import SpearmanCorrCoef

from fusionlab.commands.console import silence


def test_what_metrics_keep_is_not_told() -> None:
    """Regression data printed it with the path of a file of torchmetrics."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        SpearmanCorrCoef()
        before = len(told)
        silence()
        SpearmanCorrCoef()
    assert len(told) == before
