"""Inputs with damage are refused in one sentence, or prove harmless; nothing else happens.

Of every other kind of damage one is tried; make fuzz tries all.
"""

from pathlib import Path

import pytest

from tests.parts import one_in
from tests.robustness.client import Server
from tests.robustness.demands import try_case
from tests.robustness.generator import KINDS

SEED = 0


@pytest.mark.parametrize("index", one_in(3, range(len(KINDS))))
def test_damaged_input(server: Server, sound: Path, tmp_path: Path, index: int) -> None:
    """Exit 0 or 2, one sentence, a minute of a processor, 2 GiB, offline, no code run, nothing written but the output.

    Nothing is merged from bytes that can be seen to be damaged (see `strict_reader.complaint_about_weights`). A case
    is repeated by ``make fuzz SEED=0 FIRST=index N=1``.
    """
    tried = try_case(server, sound, SEED, index, tmp_path / "case")
    assert not tried.complaints, str(tried)
