"""An input of every kind of damage: each is refused in one sentence, or proves harmless; nothing else happens."""

from pathlib import Path

import pytest

from tests.robustness.client import Server
from tests.robustness.demands import try_case
from tests.robustness.generator import KINDS

SEED, CASES = 0, len(KINDS)


@pytest.mark.parametrize("index", range(CASES))
def test_damaged_input(server: Server, sound: Path, tmp_path: Path, index: int) -> None:
    """Exit 0 or 2, one sentence, a minute of a processor, 2 GiB, offline, no code run, nothing written but the output.

    Nothing is merged from bytes that can be seen to be damaged (see `strict_reader.complaint_about_weights`). A case
    is repeated by ``make fuzz SEED=0 FIRST=index N=1``.
    """
    tried = try_case(server, sound, SEED, index, tmp_path / "case")
    assert not tried.complaints, str(tried)
