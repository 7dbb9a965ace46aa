"""Pictures drawn small and quickly, for tests of what else a command does.

`tests/evaluation` draws them as users see them.
"""

from collections.abc import Iterator

import pytest

from fusionlab.evaluation import drawing


@pytest.fixture(scope="package", autouse=True)
def small_pictures() -> Iterator[None]:
    """A sixth of the resolution, and no search for a layout in which no label covers another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "DPI", 25)
        patch.setattr(drawing, "ConstrainedLayoutEngine", lambda **_: None)
        yield
