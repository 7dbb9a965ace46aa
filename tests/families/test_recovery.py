"""Every architecture is found again by its weights, covered, stored and rounded: the cases of `test_families`.

A file of its own, so that two processes share the work: from the last case to the first, so that what either infers
is known to the other when they meet.
"""

from pathlib import Path

import pytest

from fusionlab.matching.presets import preset
from tests.families import harness
from tests.families.harness import Case
from tests.families.test_families import MOST, SOME, as_is_and_folded

each = pytest.mark.parametrize("case", MOST[::-1], ids=lambda case: case.name)
some = pytest.mark.parametrize("case", SOME[::-1], ids=lambda case: case.name)


@some
@as_is_and_folded
def test_a_planted_alignment_is_recovered(case: Case, folded: bool) -> None:
    harness.check_planted_alignment_is_recovered(case, folded)


@some
def test_a_model_in_a_random_basis_is_found_again_by_its_weights(case: Case) -> None:
    harness.check_hidden_model_is_found(case, preset("weights", temperatures=5))


@each
def test_coverage_is_as_listed(case: Case) -> None:
    harness.check_coverage(case)


@each
def test_every_space_knows_its_layer(case: Case) -> None:
    harness.check_layers(case)


@each
def test_every_block_has_elements_of_its_own(case: Case) -> None:
    harness.check_elements(case)


@pytest.mark.parametrize("case", [c for c in SOME[::-1] if c.stored], ids=lambda case: case.name)
def test_a_saved_twin_loads(case: Case, tmp_path: Path) -> None:
    harness.check_saved_twin_loads(case, tmp_path)


@some
def test_bfloat16_in_bfloat16_out(case: Case) -> None:
    harness.check_bfloat16(case)
