"""Inputs with damage are refused in one sentence, or prove harmless; nothing else happens.

Every eighth kind of damage is tried, and what would run code of the input; make fuzz tries all.
"""

from pathlib import Path

import pytest

from tests.parts import one_in
from tests.robustness.client import Server
from tests.robustness.demands import try_case
from tests.robustness.generator import KINDS, name_of

SEED = 0
PLACES = range(len(KINDS))
WITH_CODE = [index for index in PLACES if name_of(SEED, index) in ("runs_code", "remote_code")]


@pytest.mark.parametrize("index", sorted({*one_in(8, PLACES), *WITH_CODE}))
def test_damaged_input(server: Server, sound: Path, tmp_path: Path, index: int) -> None:
    """Exit 0 or 2, one sentence, a minute of a processor, 2 GiB, offline, no code run, nothing written but the output.

    Nothing is merged from bytes that can be seen to be damaged (see `strict_reader.complaint_about_weights`). A case
    is repeated by ``make fuzz SEED=0 FIRST=index N=1``.
    """
    tried = try_case(server, sound, SEED, index, tmp_path / "case")
    assert not tried.complaints, str(tried)
