"""All that shows the results of a run, in a folder."""

from pathlib import Path

from fusionlab.evaluation.plots import plots
from fusionlab.evaluation.report import write_report
from fusionlab.evaluation.results import Results
from fusionlab.evaluation.tensorboard import write_tensorboard


def write(results: Results, folder: Path) -> None:
    """Write ``results.json``, ``results.csv``, ``report.html``, ``plots/`` and TensorBoard logs.

    Args:
        results: what was measured.
        folder: made if it is not there; files of the same names are replaced.

    Raises:
        OSError: the disk failed or is full.
    """
    drawn = plots(results)
    write_report(results, folder, drawn)
    write_tensorboard(results, folder / "tensorboard", drawn)
