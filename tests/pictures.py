"""Pictures drawn quickly or left empty, for tests of what else a command does.

`tests/evaluation` draws them as users see them, and `tests/first_hour` those of whole walks.
"""

from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

from fusionlab.evaluation import drawing, plots


@pytest.fixture(scope="module", autouse=True)
def small_pictures() -> Iterator[None]:
    """A sixth of the resolution, and no search for a layout in which no label covers another.

    For a module alone: one of a package that a module imports would stay until the end of the run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "DPI", 25)
        patch.setattr(drawing, "ConstrainedLayoutEngine", lambda **_: None)
        yield


@pytest.fixture(scope="package", autouse=True)
def empty_pictures() -> Iterator[None]:
    """All pictures, under their names and with their words, each an empty sheet."""
    with pytest.MonkeyPatch.context() as patch:
        leave_empty(patch)
        yield


def leave_empty(patch: pytest.MonkeyPatch) -> None:
    """Make every picture an empty sheet, until the patch is undone."""
    patch.setattr(drawing, "DPI", 25)
    for name in ("scores_figure", "line_figure", "distance_figure", "heat_figure"):
        patch.setattr(plots, name, lambda *_: Figure(figsize=(5.6, 3.0)))
